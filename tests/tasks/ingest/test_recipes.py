"""Each recipe of the page on logs reads what its service exports, in small files with invented content."""

import gzip
import json
import re
from datetime import datetime

import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.datasets.columns import KNOWN_NAMES
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows
from tests.typed import read_page

PAGE = read_page("docs/how-to/logs.md")
RECIPES = dict(re.findall(r"^### (.+?)\n.*?^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
Files = dict[str, str | bytes]
Event = tuple[str, str, float, str | None] | tuple[str, str, float, str | None, str]


def to_lines(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def export_shopify() -> tuple[Files, list[Event]]:
    """Each further product of an order is a line without the customer; a note has several lines, with marks."""
    names = (
        "Name,Email,Financial Status,Total,Created at,Lineitem quantity,Lineitem name,Lineitem sku,"
        "Billing Name,Notes,Cancelled at,Id,Tags"
    )
    text = f"""{names}
#1001,Ann@example.com,paid,31.00,2025-03-03 12:06:51 +0100,2,"Tea, green",TEA-1,Ann Ex,"Leave it
at the ""blue"" door, please

Thanks",,5001,
#1001,,,,,1,Cup,CUP-1,,,,,
#1001,,,,,1,Gift card,,,,,,
#1002,bob@example.com,paid,9.00,2025-07-01 23:59:59 +0200,1,Cup,CUP-1,Bob Ex,,,5002,new
#1003,bob@example.com,voided,9.00,2025-07-02 08:00:00 +0200,1,Pot,POT-1,Bob Ex,,2025-07-02 09:00:00 +0200,5003,
#1003,,,,,4,"Tea, green",TEA-1,,,,,
"""
    return {"orders_export_1.csv": text}, [
        ("ann@example.com", "TEA-1", 2, "2025-03-03 11:06:51"),
        ("ann@example.com", "CUP-1", 1, "2025-03-03 11:06:51"),
        ("ann@example.com", "Gift card", 1, "2025-03-03 11:06:51"),
        ("bob@example.com", "CUP-1", 1, "2025-07-01 21:59:59"),
    ]


def export_woocommerce() -> tuple[Files, list[Event]]:
    """Order 11 was returned in part (13), order 12 wholly (14), and order 15 was never paid."""
    lines = """order_item_id,order_id,product_id,variation_id,customer_id,date_created,product_qty,product_net_revenue
1,11,501,0,7,2025-01-10 00:30:00,2,20
2,11,502,0,7,2025-01-10 00:30:00,1,9.5
3,12,501,0,8,2025-07-10 12:00:00,1,10
4,13,502,0,7,2025-07-11 12:00:00,-1,-9.5
5,14,501,0,8,2025-07-12 12:00:00,-1,-10
6,15,503,0,8,2025-07-13 12:00:00,1,10
"""
    orders = """order_id,parent_id,date_created,num_items_sold,total_sales,status,customer_id
11,0,2025-01-10 00:30:00,3,29.5,wc-completed,7
12,0,2025-07-10 12:00:00,1,10,wc-refunded,8
13,11,2025-07-11 12:00:00,-1,-9.5,wc-completed,7
14,12,2025-07-12 12:00:00,-1,-10,wc-completed,8
15,0,2025-07-13 12:00:00,1,10,wc-failed,8
"""
    return {"wp_wc_order_product_lookup.csv": lines, "wp_wc_order_stats.csv": orders}, [
        ("7", "501", 2, "2025-01-09 23:30:00"),
        ("7", "502", 1, "2025-01-09 23:30:00"),
        ("7", "502", -1, "2025-07-11 10:00:00"),
    ]


def export_stripe() -> tuple[Files, list[Event]]:
    """Lines of the API before 2025 have a price, later ones a pricing; a draft is no purchase."""

    def make_invoice(customer: str, status: str, created: int, *lines: dict) -> dict:
        data = [{"object": "line_item", "metadata": {}, **line} for line in lines]
        return {"customer": customer, "status": status, "created": created, "lines": {"object": "list", "data": data}}

    old = {"quantity": 2, "price": {"id": "price_1", "product": "prod_tea"}}
    new = {"quantity": 1, "pricing": {"type": "price_details", "price_details": {"product": "prod_cup"}}}
    pages = [
        [make_invoice("cus_ann", "paid", 1_740_000_000, old, new)],
        [make_invoice("cus_bob", "draft", 1_740_100_000, new), make_invoice("cus_bob", "paid", 1_740_200_000, old)],
    ]
    texts = [json.dumps({"object": "list", "has_more": True, "data": page}, indent=2) for page in pages]
    return {f"invoices-{number}.json": text for number, text in enumerate(texts)}, [
        ("cus_ann", "prod_tea", 2, "2025-02-19 21:20:00"),
        ("cus_ann", "prod_cup", 1, "2025-02-19 21:20:00"),
        ("cus_bob", "prod_tea", 2, "2025-02-22 04:53:20"),
    ]


def export_ga4() -> tuple[Files, list[Event]]:
    """BigQuery writes whole numbers as text; a parameter has one of several values, in any order."""

    def make_event(name: str, at: str, **given: str) -> dict:
        parameters = [{"key": "ga_session_id", "value": {"int_value": "17"}}]
        parameters += [{"key": key, "value": {"string_value": value}} for key, value in given.items()]
        known = {"event_date": "20250303", "user_pseudo_id": "81.17", "items": [], "user_id": None}
        return {"event_name": name, "event_timestamp": at, "event_params": parameters, **known}

    page = "https://news.example/a"
    events = [
        make_event("page_view", "1740000000123456", page_title="A", page_location=f"{page}?utm_source=x"),
        make_event("scroll", "1740000001000000", page_location=page),
        make_event("page_view", "1740000002000000", page_location="https://news.example/b", page_referrer=page),
    ]
    return {"events_20250303.json": to_lines(*events)}, [
        ("81.17", page, 1, "2025-02-19 21:20:00.123456"),
        ("81.17", "https://news.example/b", 1, "2025-02-19 21:20:02"),
    ]


def export_segment() -> tuple[Files, list[Event]]:
    """A visitor has an id after the login only; calls of other kinds have other properties, or none."""
    base = {"type": "track", "anonymousId": "a-1", "userId": None, "timestamp": "2025-03-03T12:06:51.500Z"}
    tea, cup = {"product_id": "tea", "quantity": 2}, {"product_id": "cup", "name": "Cup"}
    calls = [
        base | {"event": "Product Viewed", "properties": {"product_id": "tea", "price": 4.5}},
        {"type": "page", "anonymousId": "a-1", "properties": {"url": "/"}, "timestamp": "2025-03-03T12:06:52.000Z"},
        base | {"event": "Newsletter Joined", "properties": {}},
        base | {"event": "Order Completed", "userId": "ann", "properties": {"order_id": 9, "products": [tea, cup]}},
    ]
    return {"segment/1.json.gz": gzip.compress(to_lines(*calls).encode())}, [
        ("a-1", "tea", 1, "2025-03-03 12:06:51.5", "Product Viewed"),
        ("ann", "tea", 2, "2025-03-03 12:06:51.5", "Order Completed"),
        ("ann", "cup", 1, "2025-03-03 12:06:51.5", "Order Completed"),
    ]


def export_matomo() -> tuple[Files, list[Event]]:
    """Visits are an array; some visitors are logged in; a search is an action of another type."""

    def make_visit(visitor: str, user: str | None, *actions: tuple[str, str]) -> dict:
        details = [{"type": kind, "url": url, "timestamp": 1_740_000_000, "pageTitle": "x"} for kind, url in actions]
        return {"idVisit": 1, "visitorId": visitor, "userId": user, "actionDetails": details}

    site = "https://shop.example"
    visits = [
        make_visit("81ab", None, ("action", f"{site}/tea?ref=mail"), ("search", f"{site}/?q=cup")),
        make_visit("92cd", "ann", ("action", f"{site}/cup")),
        make_visit("a3ef", "", ("action", f"{site}/cup"), ("outlink", "https://other.example")),
        make_visit("b4", None),
    ]
    return {"visits-1.json": json.dumps(visits)}, [
        ("81ab", f"{site}/tea", 1, "2025-02-19 21:20:00"),
        ("ann", f"{site}/cup", 1, "2025-02-19 21:20:00"),
        ("a3ef", f"{site}/cup", 1, "2025-02-19 21:20:00"),
    ]


def export_mind() -> tuple[Files, list[Event]]:
    """No header; the second line of a user repeats the history; a user may have none."""
    text = (
        "1\tU1\t11/13/2019 8:36:57 PM\tN1 N2\tN7-0 N8-1 N9-0\n"
        "2\tU1\t11/12/2019 9:00:00 AM\tN1 N2\tN5-1 N6-1\n"
        "3\tU2\t11/15/2019 12:00:01 AM\t\tN8-0 N1-1\n"
    )
    return {"behaviors.tsv": text}, [
        ("U1", "N8", 1, "2019-11-13 20:36:57"),
        ("U1", "N5", 1, "2019-11-12 09:00:00"),
        ("U1", "N6", 1, "2019-11-12 09:00:00"),
        ("U2", "N1", 1, "2019-11-15 00:00:01"),
        ("U1", "N1", 1, "2019-11-12 08:59:59"),
        ("U1", "N2", 1, "2019-11-12 08:59:59"),
    ]


def export_santander() -> tuple[Files, list[Event]]:
    """Other columns begin with `ind_` or end in `_1t`; a product is missing, held for months, or given back."""
    text = """fecha_dato,ncodpers,ind_nuevo,ult_fec_cli_1t,ind_ahor_fin_ult1,ind_nomina_ult1,ind_recibo_ult1
2015-01-28,15889,1,,0,NA,1
2015-02-28,15889,0,,1,1.0,1
2015-03-28,15889,0,,1,0.0,0
2015-02-28,15890,0,2015-07-01,0,0,1
"""
    return {"train_ver2.csv": text}, [
        ("15889", "ind_ahor_fin_ult1", 1, "2015-02-28 00:00:00"),
        ("15889", "ind_nomina_ult1", 1, "2015-02-28 00:00:00"),
        ("15889", "ind_recibo_ult1", 1, "2015-01-28 00:00:00"),
        ("15890", "ind_recibo_ult1", 1, "2015-02-28 00:00:00"),
    ]


def export_goodreads() -> tuple[Files, list[Event]]:
    """ISBNs are formulas for Excel, reviews have several lines, and most dates of reading are empty."""
    names = "Book Id,Title,Author,ISBN,My Rating,Date Read,Date Added,Bookshelves,Exclusive Shelf,My Review"
    ann = f'''{names}
11,"Tea, Vol. 1 (Tea, #1)",Ann Author,"=""0141439513""",5,2023/05/01,2023/04/01,,read,"Good.<br/>
""Very"" good"
12,Cups,Bo Author,"=""""",0,,2023/06/02,favorites,read,
13,Pots,Bo Author,"=""""",0,,2023/06/03,to-read,to-read,
'''
    bob = f"{names}\n11,Tea,Ann Author,,1,2023/07/01,2023/07/01,,read,\n12,Cups,B,,4,,2023/07/02,,read,\n"
    return {"shelves/ann.csv": ann, "shelves/bob.csv": bob}, [
        ("ann", "11", 1, "2023-05-01 00:00:00"),
        ("ann", "12", 1, "2023-06-02 00:00:00"),
        ("bob", "12", 1, "2023-07-02 00:00:00"),
    ]


def export_kkbox() -> tuple[Files, list[Event]]:
    """Ids are base64, with its marks; most columns may be empty; no times."""
    text = """msno,song_id,source_system_tab,source_screen_name,source_type,target
FGtllVqz18RPiwJj/edr2g=,BBzumQNXUHKdEBOB7mAJuzok+IJA=,explore,Explore,online-playlist,1
Xumu+NIjS6QYVxDS4/t3Sa==,bhp/MpSNoqoxOIB+/l8WPqu6=,,,,0
"""
    return {"train.csv": text}, [
        ("FGtllVqz18RPiwJj/edr2g=", "BBzumQNXUHKdEBOB7mAJuzok+IJA=", 1, None),
        ("Xumu+NIjS6QYVxDS4/t3Sa==", "bhp/MpSNoqoxOIB+/l8WPqu6=", 0, None),
    ]


def export_expedia() -> tuple[Files, list[Event]]:
    """Many columns of small numbers; the distance is often missing."""
    text = """date_time,site_name,user_id,orig_destination_distance,is_mobile,srch_ci,is_booking,cnt,hotel_cluster
2014-08-11 07:46:59,2,12,2234.2641,0,2014-08-27,0,3,1
2014-08-11 08:22:12,2,12,,0,2014-08-29,1,1,91
"""
    return {"train.csv": text}, [
        ("12", "1", 3, "2014-08-11 07:46:59", "click"),
        ("12", "91", 1, "2014-08-11 08:22:12", "booking"),
    ]


def export_outbrain() -> tuple[Files, list[Event]]:
    """A few platforms are a backslash and N, so their column is text."""
    events = "display_id,uuid,document_id,timestamp,platform,geo_location\n1,cb8c55702adb93,379743,61,3,US>SC>519\n"
    events += "2,79a85fa78311b9,1794259,81000,\\N,SG>00\n"
    clicks = "display_id,ad_id,clicked\n1,42337,0\n1,139684,1\n2,42337,1\n2,151028,0\n"
    return {"events.csv": events, "clicks_train.csv": clicks}, [
        ("cb8c55702adb93", "139684", 1, "2016-06-14 04:00:00.059"),
        ("79a85fa78311b9", "42337", 1, "2016-06-14 04:01:20.998"),
    ]


def export_koha() -> tuple[Files, list[Event]]:
    """Payments have no item, anonymised loans no borrower; copies 51 and 52 are of one title."""
    statistics = """datetime,branch,value,type,other,itemnumber,itemtype,location,borrowernumber,ccode
2025-03-03 10:15:00,CPL,0,issue,,51,BK,GEN,7,FIC
2025-03-24 10:15:00,CPL,0,renew,,51,BK,GEN,7,FIC
2025-07-04 10:15:00,CPL,0,return,,51,BK,GEN,7,FIC
2025-07-04 10:20:00,CPL,0,issue,,52,BK,GEN,8,FIC
2025-07-04 10:21:00,CPL,0,issue,,53,BK,GEN,,FIC
2025-07-04 10:22:00,CPL,2.5,payment,,,,,8,
"""
    items = "itemnumber,biblionumber,barcode\n51,900,X1\n52,900,X2\n53,901,X3\n"
    return {"statistics.csv": statistics, "items.csv": items}, [
        ("7", "900", 1, "2025-03-03 09:15:00", "issue"),
        ("7", "900", 1, "2025-03-24 09:15:00", "renew"),
        ("8", "900", 1, "2025-07-04 08:20:00", "issue"),
    ]


def export_spotify() -> tuple[Files, list[Event]]:
    """A podcast has no song, a skipped song few milliseconds, and some histories no `username`."""

    def make_play(uri: str | None, milliseconds: int, **more: str) -> dict:
        known = {"ts": "2023-01-05T12:34:56Z", "platform": "ios", "ms_played": milliseconds, "spotify_track_uri": uri}
        return {**known, "spotify_episode_uri": None if uri else "spotify:episode:1", "shuffle": False, **more}

    ann = [make_play("spotify:track:1", 200_000, username="ann71"), make_play(None, 900_000, username="ann71")]
    bob = [make_play("spotify:track:2", 29_999), make_play("spotify:track:1", 30_000)]
    return {"ann/endsong_0.json": json.dumps(ann), "bob/endsong_0.json": json.dumps(bob)}, [
        ("ann71", "spotify:track:1", 1, "2023-01-05 12:34:56"),
        ("bob", "spotify:track:1", 1, "2023-01-05 12:34:56"),
    ]


def export_orders() -> tuple[Files, list[Event]]:
    """The customer and the time stand in the order, the products in its lines; one product comes back."""
    files: Files = {
        "orders-1.csv": "order_id,customer,ordered_at\n1,C-7,2025-03-03 10:00:00\n2,C-8,2025-03-04 10:00:00\n",
        "lines-1.csv": "order_id,sku,quantity\n1,TEA,2\n1,CUP,1\n2,TEA,1\n",
        "returns-1.csv": "order_id,sku,quantity,returned_at\n1,CUP,1,2025-03-09 10:00:00\n",
    }
    return files, [
        ("C-7", "TEA", 2, "2025-03-03 10:00:00"),
        ("C-7", "CUP", 1, "2025-03-03 10:00:00"),
        ("C-8", "TEA", 1, "2025-03-04 10:00:00"),
        ("C-7", "CUP", -1, "2025-03-09 10:00:00"),
    ]


EXPORTS = {
    "Shopify": export_shopify,
    "WooCommerce": export_woocommerce,
    "Stripe": export_stripe,
    "GA4": export_ga4,
    "Segment": export_segment,
    "Matomo": export_matomo,
    "MIND": export_mind,
    "Santander": export_santander,
    "Goodreads": export_goodreads,
    "KKBox": export_kkbox,
    "Expedia": export_expedia,
    "Outbrain": export_outbrain,
    "Koha": export_koha,
    "Spotify": export_spotify,
    "Orders, lines and returns": export_orders,
}


def test_the_page_has_a_test_of_each_recipe_and_every_known_name():
    assert list(RECIPES) == list(EXPORTS)
    rows = re.findall(rf"^\| ({'|'.join(KNOWN_NAMES)}) \| (`.*`) \|$", PAGE, flags=re.MULTILINE)
    assert {role: tuple(names.strip("`").split("`, `")) for role, names in rows} == KNOWN_NAMES


@pytest.mark.parametrize("name", EXPORTS)
def test_a_recipe_reads_what_was_meant(home, name):
    files, meant = EXPORTS[name]()
    beside = home.root / "datasets"
    for file, content in files.items():
        (beside / file).parent.mkdir(parents=True, exist_ok=True)
        (beside / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (beside / f"{home.dataset}.toml").write_text(RECIPES[name])
    ingest(home, dataset := load_dataset(home.dataset, home.root), [], "run")
    read = query_rows(home, "select user_id, item_id, value, occurred_at, event from raw.events")
    assert sorted(read, key=str) == sorted([make_row(*event) for event in meant], key=str)
    assert query_rows(home, "select reason from raw.rejects") == []
    BinarizeSettings(**dataset.binarize_settings)


def make_row(user: str, item: str, value: float, at: str | None, kind: str | None = None) -> tuple:
    return user, item, value, datetime.fromisoformat(at) if at else None, kind
