//! The queries of one lookup over connections to one server.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Counts the queries for dead names, and answers others; on each connection one after the other.
async fn serve(mut far: tokio::net::TcpStream, dead: Arc<AtomicUsize>) {
    while let Ok(octets) = far.read_u16().await {
        let mut query = vec![0; octets.into()];
        far.read_exact(&mut query).await.unwrap();
        if query.windows(4).any(|part| part == b"dead") {
            dead.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        // Without the OPT, which has 11 octets.
        query.truncate(query.len() - 11 * usize::from(query[11]));
        (query[2], query[3], query[11]) = (0x81, 0x83, 0);
        far.write_u16(query.len() as u16).await.unwrap();
        far.write_all(&query).await.unwrap();
    }
}

/// It would delay other names on each connection.
#[tokio::test]
async fn fw23_l16_a_late_name_is_asked_once_where_copies_of_other_names_help() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dead = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&dead);
    tokio::spawn(async move {
        loop {
            let (far, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(far, Arc::clone(&counts)));
        }
    });
    let upstreams = upstreams_over(config::Transport::Tcp, &[address], GroupOptions::default());
    let group = Arc::clone(upstreams.group(0).unwrap());
    let ask = |name: &'static str| {
        let group = Arc::clone(&group);
        tokio::spawn(async move {
            let key = LookupKey::new(Name::from_text(name).unwrap(), 1, false, false);
            lookup(&group, &[0], &key, now()).await
        })
    };
    let _first = ask("dead1.example");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(ask("behind.example").await.unwrap().is_ok());
    let before = dead.load(Ordering::Relaxed);
    let late = ask("dead2.example");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(dead.load(Ordering::Relaxed) - before, 1);
    let ended = late.await.unwrap();
    assert!(matches!(ended, Err(Unresolved::Silence)), "{ended:?}");
}
