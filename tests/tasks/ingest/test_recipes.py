"""Each recipe of the page on logs reads what its service exports, in small files with invented content."""

import gzip
import re

import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.datasets.sections import KNOWN_NAMES
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import write_file
from tests.typed import read_page

PAGE = read_page("docs/how-to/logs.md")
RECIPES = dict(re.findall(r"^### (.+?)\n.*?^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
EXPORTS = '''
### Shopify: each further product of an order is a line without the customer; a note has several lines, with marks
-- orders_export_1.csv
Name,Email,Financial Status,Total,Created at,Lineitem quantity,Lineitem name,Lineitem sku,\
Billing Name,Notes,Cancelled at,Id,Tags
#1001,Ann@example.com,paid,31.00,2025-03-03 12:06:51 +0100,2,"Tea, green",TEA-1,Ann Ex,"Leave it
at the ""blue"" door, please

Thanks",,5001,
#1001,,,,,1,Cup,CUP-1,,,,,
#1001,,,,,1,Gift card,,,,,,
#1002,bob@example.com,paid,9.00,2025-07-01 23:59:59 +0200,1,Cup,CUP-1,Bob Ex,,,5002,new
#1003,bob@example.com,voided,9.00,2025-07-02 08:00:00 +0200,1,Pot,POT-1,Bob Ex,,2025-07-02 09:00:00 +0200,5003,
#1003,,,,,4,"Tea, green",TEA-1,,,,,
=> ann@example.com, TEA-1, 2.0, 2025-03-03 11:06:51
=> ann@example.com, CUP-1, 1.0, 2025-03-03 11:06:51
=> ann@example.com, Gift card, 1.0, 2025-03-03 11:06:51
=> bob@example.com, CUP-1, 1.0, 2025-07-01 21:59:59
### WooCommerce: order 11 was returned in part (13), order 12 wholly (14), and order 15 was never paid
-- wp_wc_order_product_lookup.csv
order_item_id,order_id,product_id,variation_id,customer_id,date_created,product_qty,product_net_revenue
1,11,501,0,7,2025-01-10 00:30:00,2,20
2,11,502,0,7,2025-01-10 00:30:00,1,9.5
3,12,501,0,8,2025-07-10 12:00:00,1,10
4,13,502,0,7,2025-07-11 12:00:00,-1,-9.5
5,14,501,0,8,2025-07-12 12:00:00,-1,-10
6,15,503,0,8,2025-07-13 12:00:00,1,10
-- wp_wc_order_stats.csv
order_id,parent_id,date_created,num_items_sold,total_sales,status,customer_id
11,0,2025-01-10 00:30:00,3,29.5,wc-completed,7
12,0,2025-07-10 12:00:00,1,10,wc-refunded,8
13,11,2025-07-11 12:00:00,-1,-9.5,wc-completed,7
14,12,2025-07-12 12:00:00,-1,-10,wc-completed,8
15,0,2025-07-13 12:00:00,1,10,wc-failed,8
=> 7, 501, 2.0, 2025-01-09 23:30:00
=> 7, 502, 1.0, 2025-01-09 23:30:00
=> 7, 502, -1.0, 2025-07-11 10:00:00
### Stripe: lines of the API before 2025 have a price, later ones a pricing; a draft is no purchase
-- invoices-1.json
{"object": "list", "has_more": true, "data": [
  {"customer": "cus_ann", "status": "paid", "created": 1740000000, "lines": {"object": "list", "data": [
    {"object": "line_item", "metadata": {}, "quantity": 2, "price": {"id": "price_1", "product": "prod_tea"}},
    {"object": "line_item", "metadata": {}, "quantity": 1,
      "pricing": {"type": "price_details", "price_details": {"product": "prod_cup"}}}]}}]}
-- invoices-2.json
{"object": "list", "has_more": true, "data": [
  {"customer": "cus_bob", "status": "draft", "created": 1740100000, "lines": {"object": "list", "data": [
    {"object": "line_item", "metadata": {}, "quantity": 1,
      "pricing": {"type": "price_details", "price_details": {"product": "prod_cup"}}}]}},
  {"customer": "cus_bob", "status": "paid", "created": 1740200000, "lines": {"object": "list", "data": [
    {"object": "line_item", "metadata": {}, "quantity": 2, "price": {"id": "price_1", "product": "prod_tea"}}]}}]}
=> cus_ann, prod_tea, 2.0, 2025-02-19 21:20:00
=> cus_ann, prod_cup, 1.0, 2025-02-19 21:20:00
=> cus_bob, prod_tea, 2.0, 2025-02-22 04:53:20
### GA4: BigQuery writes whole numbers as text; a parameter has one of several values, in any order
-- events_20250303.json
{"event_name": "page_view", "event_timestamp": "1740000000123456", "user_pseudo_id": "81.17", "event_params": [\
 {"key": "ga_session_id", "value": {"int_value": "17"}}, {"key": "page_title", "value": {"string_value": "A"}},\
 {"key": "page_location", "value": {"string_value": "https://news.example/a?utm_source=x"}}], "user_id": null}
{"event_name": "scroll", "event_timestamp": "1740000001000000", "user_pseudo_id": "81.17", "event_params": [\
 {"key": "page_location", "value": {"string_value": "https://news.example/a"}}], "items": [], "user_id": null}
{"event_name": "page_view", "event_timestamp": "1740000002000000", "user_pseudo_id": "81.17", "event_params": [\
 {"key": "page_location", "value": {"string_value": "https://news.example/b"}},\
 {"key": "page_referrer", "value": {"string_value": "https://news.example/a"}}], "items": [], "user_id": null}
=> 81.17, https://news.example/a, 1.0, 2025-02-19 21:20:00.123456
=> 81.17, https://news.example/b, 1.0, 2025-02-19 21:20:02
### Segment: a visitor has an id after the login only; calls of other kinds have other properties, or none
-- segment/1.json.gz
{"type": "track", "anonymousId": "a-1", "userId": null, "timestamp": "2025-03-03T12:06:51.500Z",\
 "event": "Product Viewed", "properties": {"product_id": "tea", "price": 4.5}}
{"type": "page", "anonymousId": "a-1", "properties": {"url": "/"}, "timestamp": "2025-03-03T12:06:52.000Z"}
{"type": "track", "anonymousId": "a-1", "userId": null, "timestamp": "2025-03-03T12:06:51.500Z",\
 "event": "Newsletter Joined", "properties": {}}
{"type": "track", "anonymousId": "a-1", "userId": "ann", "timestamp": "2025-03-03T12:06:51.500Z",\
 "event": "Order Completed", "properties": {"order_id": 9, "products": [\
 {"product_id": "tea", "quantity": 2}, {"product_id": "cup", "name": "Cup"}]}}
=> a-1, tea, 1.0, 2025-03-03 12:06:51.5, Product Viewed
=> ann, tea, 2.0, 2025-03-03 12:06:51.5, Order Completed
=> ann, cup, 1.0, 2025-03-03 12:06:51.5, Order Completed
### Matomo: visits are an array; some visitors are logged in; a search is an action of another type
-- visits-1.json
[{"idVisit": 1, "visitorId": "81ab", "userId": null, "actionDetails": [
  {"type": "action", "url": "https://shop.example/tea?ref=mail", "timestamp": 1740000000, "pageTitle": "x"},
  {"type": "search", "url": "https://shop.example/?q=cup", "timestamp": 1740000000, "pageTitle": "x"}]},
 {"idVisit": 2, "visitorId": "92cd", "userId": "ann", "actionDetails": [
  {"type": "action", "url": "https://shop.example/cup", "timestamp": 1740000000, "pageTitle": "x"}]},
 {"idVisit": 3, "visitorId": "a3ef", "userId": "", "actionDetails": [
  {"type": "action", "url": "https://shop.example/cup", "timestamp": 1740000000, "pageTitle": "x"},
  {"type": "outlink", "url": "https://other.example", "timestamp": 1740000000, "pageTitle": "x"}]},
 {"idVisit": 4, "visitorId": "b4", "userId": null, "actionDetails": []}]
=> 81ab, https://shop.example/tea, 1.0, 2025-02-19 21:20:00
=> ann, https://shop.example/cup, 1.0, 2025-02-19 21:20:00
=> a3ef, https://shop.example/cup, 1.0, 2025-02-19 21:20:00
### MIND: no header; the second line of a user repeats the history; a user may have none
-- behaviors.tsv
1\tU1\t11/13/2019 8:36:57 PM\tN1 N2\tN7-0 N8-1 N9-0
2\tU1\t11/12/2019 9:00:00 AM\tN1 N2\tN5-1 N6-1
3\tU2\t11/15/2019 12:00:01 AM\t\tN8-0 N1-1
=> U1, N8, 1.0, 2019-11-13 20:36:57
=> U1, N5, 1.0, 2019-11-12 09:00:00
=> U1, N6, 1.0, 2019-11-12 09:00:00
=> U2, N1, 1.0, 2019-11-15 00:00:01
=> U1, N1, 1.0, 2019-11-12 08:59:59
=> U1, N2, 1.0, 2019-11-12 08:59:59
### Santander: others begin with `ind_` or end in `_1t`; a product is missing, held for months, or given back
-- train_ver2.csv
fecha_dato,ncodpers,ind_nuevo,ult_fec_cli_1t,ind_ahor_fin_ult1,ind_nomina_ult1,ind_recibo_ult1
2015-01-28,15889,1,,0,NA,1
2015-02-28,15889,0,,1,1.0,1
2015-03-28,15889,0,,1,0.0,0
2015-02-28,15890,0,2015-07-01,0,0,1
=> 15889, ind_ahor_fin_ult1, 1.0, 2015-02-28 00:00:00
=> 15889, ind_nomina_ult1, 1.0, 2015-02-28 00:00:00
=> 15889, ind_recibo_ult1, 1.0, 2015-01-28 00:00:00
=> 15890, ind_recibo_ult1, 1.0, 2015-02-28 00:00:00
### Goodreads: ISBNs are formulas for Excel, reviews have several lines, and most dates of reading are empty
-- shelves/ann.csv
Book Id,Title,Author,ISBN,My Rating,Date Read,Date Added,Bookshelves,Exclusive Shelf,My Review
11,"Tea, Vol. 1 (Tea, #1)",Ann Author,"=""0141439513""",5,2023/05/01,2023/04/01,,read,"Good.<br/>
""Very"" good"
12,Cups,Bo Author,"=""""",0,,2023/06/02,favorites,read,
13,Pots,Bo Author,"=""""",0,,2023/06/03,to-read,to-read,
-- shelves/bob.csv
Book Id,Title,Author,ISBN,My Rating,Date Read,Date Added,Bookshelves,Exclusive Shelf,My Review
11,Tea,Ann Author,,1,2023/07/01,2023/07/01,,read,
12,Cups,B,,4,,2023/07/02,,read,
=> ann, 11, 1.0, 2023-05-01 00:00:00
=> ann, 12, 1.0, 2023-06-02 00:00:00
=> bob, 12, 1.0, 2023-07-02 00:00:00
### Koha: payments have no item, anonymised loans no borrower; copies 51 and 52 are of one title
-- statistics.csv
datetime,branch,value,type,other,itemnumber,itemtype,location,borrowernumber,ccode
2025-03-03 10:15:00,CPL,0,issue,,51,BK,GEN,7,FIC
2025-03-24 10:15:00,CPL,0,renew,,51,BK,GEN,7,FIC
2025-07-04 10:15:00,CPL,0,return,,51,BK,GEN,7,FIC
2025-07-04 10:20:00,CPL,0,issue,,52,BK,GEN,8,FIC
2025-07-04 10:21:00,CPL,0,issue,,53,BK,GEN,,FIC
2025-07-04 10:22:00,CPL,2.5,payment,,,,,8,
-- items.csv
itemnumber,biblionumber,barcode
51,900,X1
52,900,X2
53,901,X3
=> 7, 900, 1.0, 2025-03-03 09:15:00, issue
=> 7, 900, 1.0, 2025-03-24 09:15:00, renew
=> 8, 900, 1.0, 2025-07-04 08:20:00, issue
### Spotify: a podcast has no song, a skipped song few milliseconds, and some histories no `username`
-- ann/endsong_0.json
[{"ts": "2023-01-05T12:34:56Z", "username": "ann71", "ms_played": 200000, "spotify_track_uri": "spotify:track:1",
  "spotify_episode_uri": null, "platform": "ios", "shuffle": false},
 {"ts": "2023-01-05T12:34:56Z", "username": "ann71", "ms_played": 900000, "spotify_track_uri": null,
  "spotify_episode_uri": "spotify:episode:1", "platform": "ios", "shuffle": false}]
-- bob/endsong_0.json
[{"ts": "2023-01-05T12:34:56Z", "ms_played": 29999, "spotify_track_uri": "spotify:track:2", "shuffle": false},
 {"ts": "2023-01-05T12:34:56Z", "ms_played": 30000, "spotify_track_uri": "spotify:track:1", "shuffle": false}]
=> ann71, spotify:track:1, 1.0, 2023-01-05 12:34:56
=> bob, spotify:track:1, 1.0, 2023-01-05 12:34:56
### Orders, lines and returns: the customer and the time stand in the order, the products in its lines
-- orders-1.csv
order_id,customer,ordered_at
1,C-7,2025-03-03 10:00:00
2,C-8,2025-03-04 10:00:00
-- lines-1.csv
order_id,sku,quantity
1,TEA,2
1,CUP,1
2,TEA,1
-- returns-1.csv
order_id,sku,quantity,returned_at
1,CUP,1,2025-03-09 10:00:00
=> C-7, TEA, 2.0, 2025-03-03 10:00:00
=> C-7, CUP, 1.0, 2025-03-03 10:00:00
=> C-8, TEA, 1.0, 2025-03-04 10:00:00
=> C-7, CUP, -1.0, 2025-03-09 10:00:00
'''
_, *PARTS = re.split(r"^### (.+?)(?:: .+)?\n", EXPORTS, flags=re.MULTILINE)
FILES = dict(zip(PARTS[::2], PARTS[1::2], strict=True))


def test_the_page_has_a_test_of_each_recipe_and_every_known_name():
    assert list(RECIPES) == list(FILES)
    rows = re.findall(rf"^\| ({'|'.join(KNOWN_NAMES)}) \| (`.*`) \|$", PAGE, flags=re.MULTILINE)
    assert {role: tuple(names.strip("`").split("`, `")) for role, names in rows} == KNOWN_NAMES


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_reads_what_was_meant(home, name):
    given, meant = FILES[name].split("=> ", 1)
    for file, content in re.findall(r"^-- (.+)\n((?:(?!-- ).*\n)+)", given, flags=re.MULTILINE):
        packed = gzip.compress(content.encode()) if file.endswith(".gz") else content
        write_file(home.root / "datasets" / file, packed)
    write_file(home.root / "datasets" / f"{home.dataset}.toml", RECIPES[name])
    ingest(home, dataset := load_dataset(home.dataset, home.root), [], "run")
    read = query_rows(home, "select concat_ws(', ', user_id, item_id, value, occurred_at, event) from raw.events")
    assert sorted(event for (event,) in read) == sorted(meant.strip().split("\n=> "))
    assert query_rows(home, "select reason from raw.rejects") == []
    BinarizeSettings(**dataset.binarize_settings)
