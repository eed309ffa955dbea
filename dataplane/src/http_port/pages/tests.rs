//! Clients that ask for many or large pages and do not read them.

use http_body_util::BodyExt;

use super::*;

fn client(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

async fn page(pages: &Pages, last: u8) -> Response {
    page_of(pages, last, 20_000).await
}

async fn page_of(pages: &Pages, last: u8, octets: usize) -> Response {
    pages.page(client(last), "text/plain", move || "x".repeat(octets)).await
}

async fn words(response: Response) -> String {
    let octets = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(octets.to_vec()).unwrap()
}

fn held(pages: &Pages) -> usize {
    pages.sheets().values().map(|sheet| sheet.text().as_ref().unwrap().len()).sum()
}

#[tokio::test]
async fn l14_a_client_that_does_not_read_takes_its_own_pages_only() {
    let pages = Pages::default();
    let mut unread = Vec::new();
    for _ in 0..MAX_PAGES_PER_CLIENT {
        unread.push(page(&pages, 1).await);
    }
    let refused = page(&pages, 1).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(words(refused).await, OWN);
    let other = page(&pages, 2).await;
    assert_eq!(other.status(), StatusCode::OK);
    assert_eq!(other.into_body().collect().await.unwrap().to_bytes().len(), 20_000);
    for last in 3..20 {
        unread.push(page(&pages, last).await);
    }
    assert_eq!(pages.0.lock().unwrap().len(), MAX_PAGES, "in all");
    drop(unread);
    assert!(pages.0.lock().unwrap().is_empty());
}

async fn text(response: Response) -> Option<usize> {
    Some(response.into_body().collect().await.ok()?.to_bytes().len())
}

#[tokio::test]
async fn l14_four_clients_that_take_every_page_do_not_keep_a_fifth_from_any() {
    let pages = Pages::default();
    let mut unread = Vec::new();
    for asked in 0..100 {
        for greedy in (1..=4).flat_map(|last| [last; MAX_PAGES_PER_CLIENT]) {
            unread.push(page(&pages, greedy).await);
        }
        let fifth = page(&pages, 5).await;
        assert_eq!(fifth.status(), StatusCode::OK, "page {asked}");
        assert_eq!(text(fifth).await, Some(20_000), "page {asked}");
    }
    assert!(held(&pages) <= MAX_PAGES * 20_000, "{} octets", held(&pages));
    let mut read = 0;
    for response in unread {
        read += usize::from(text(response).await == Some(20_000));
    }
    assert!(read <= MAX_PAGES, "{read}: what gave way is not read to a false end");
    assert!(pages.0.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn l14_pages_of_as_many_clients_as_places_give_way_when_they_are_not_read() {
    let pages = Pages::default();
    let mut unread = Vec::new();
    for last in 0..MAX_PAGES as u8 {
        unread.push(page(&pages, last).await);
    }
    assert_eq!(page(&pages, 100).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(READ_WITHIN + Duration::from_millis(1)).await;
    assert_eq!(text(page(&pages, 100).await).await, Some(20_000));
    assert_eq!(text(unread.remove(0)).await, None, "the oldest");
    assert_eq!(text(unread.remove(0)).await, Some(20_000));
}

/// What all servers of the largest configuration may make of a page.
const LARGE: usize = MAX_HELD_OCTETS / 3;

#[tokio::test(start_paused = true)]
async fn l14_octets_of_pages_that_are_not_read_have_a_bound() {
    let pages = Pages::default();
    let mut unread = Vec::new();
    for last in 0..MAX_PAGES as u8 {
        unread.push(page_of(&pages, last, LARGE).await);
        assert!(held(&pages) <= MAX_HELD_OCTETS, "{} octets", held(&pages));
    }
    let (taken, refused) = unread.split_at(3);
    assert!(taken.iter().all(|response| response.status() == StatusCode::OK));
    let is_refused = |it: &Response| it.status() == StatusCode::SERVICE_UNAVAILABLE;
    assert!(refused.iter().all(is_refused));
    assert_eq!(text(page(&pages, 100).await).await, Some(20_000), "a small one has room");
    drop(unread);
    assert!(pages.sheets().is_empty());
}

#[tokio::test(start_paused = true)]
async fn l14_large_pages_give_way_to_a_client_that_holds_less_and_when_not_read() {
    let pages = Pages::default();
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(page_of(&pages, 1, LARGE).await);
    }
    let other = page_of(&pages, 2, LARGE).await;
    assert_eq!(text(unread.remove(2)).await, None, "the newest of the client with most");
    // Who holds two would give one up, and who holds one would not: there is no room, so none ends.
    let too_large = page_of(&pages, 3, LARGE / 10 * 19).await;
    assert_eq!(too_large.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(unread.remove(1)).await, Some(LARGE));
    tokio::time::sleep(READ_WITHIN + Duration::from_millis(1)).await;
    let alone = page_of(&pages, 3, MAX_HELD_OCTETS + 1).await;
    assert_eq!(text(other).await, None, "not read for five seconds");
    assert_eq!(text(unread.remove(0)).await, None, "not read for five seconds");
    assert_eq!(text(alone).await, Some(MAX_HELD_OCTETS + 1), "no other page is held");
    assert!(pages.sheets().is_empty());
}

#[tokio::test(start_paused = true)]
async fn l14_three_clients_that_do_not_read_keep_large_pages_from_others_for_a_second() {
    let pages = Pages::default();
    let mut unread = Vec::new();
    for last in 1..=3 {
        unread.push(page_of(&pages, last, LARGE - 1_000).await);
    }
    let refused = page_of(&pages, 4, LARGE).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(words(refused).await, OTHERS, "it holds none");
    tokio::time::sleep(UNREAD_WITHIN + Duration::from_millis(1)).await;
    let begun = unread[0].body_mut().frame().await.unwrap().unwrap();
    assert_eq!(begun.data_ref().unwrap().len(), PIECE);
    assert_eq!(text(page_of(&pages, 4, LARGE).await).await, Some(LARGE));
    assert_eq!(text(unread.remove(0)).await, Some(LARGE - 1_000 - PIECE), "it is read");
    assert_eq!(text(unread.remove(0)).await, None, "the oldest that is not");
    assert_eq!(text(unread.remove(0)).await, Some(LARGE - 1_000));
}
