"""Five users with what they like and what is recommended to them, so that one sees whether it works."""

from dataclasses import dataclass

from tasks.report.figures import grouped
from tasks.report.run_tables import RunTables
from tasks.stores import published_model
from tasks.stores.home import Home


@dataclass(frozen=True)
class ShownItem:
    """One item: its title or, without one, `item` and its id; and how many users like it."""

    name: str
    users: int


@dataclass(frozen=True)
class UserSample:
    """One user: the number of their likes, the newest of them, and the first of what is recommended."""

    user_id: str
    likes: int
    newest: list[ShownItem]
    recommended: list[ShownItem]


def samples(tables: RunTables, home: Home, items: int) -> list[UserSample]:
    """Five users spread over the lengths of history, the shortest first; fewer where there are fewer."""
    rows = tables.to_draw("sample_users", items=items)
    titles = published_model.titles(home, {row["item_id"] for row in rows})
    found = []
    for (user_id, likes), of_user in grouped(rows, "user_id", "likes").items():
        of_list = {
            name: [ShownItem(titles.get(row["item_id"], f"item {row['item_id']}"), row["users"]) for row in of_name]
            for name, of_name in grouped(of_user, "list").items()
        }
        found.append(UserSample(user_id, likes, of_list["likes"], of_list["recommended"]))
    return found
