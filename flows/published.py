"""Load and query the current publication from Python, without Prefect and without opening the warehouse.

from oneclass.flows import published

shop = published.load("var", "shop")
shop.recommend(["sku-1", "sku-9"], n=20)
shop.recommend_for("customer-42")
shop.similar_items("sku-1")
"""

from oneclass.tasks.recommend import Recommender, UnknownItems, load

__all__ = ["Recommender", "UnknownItems", "load"]
