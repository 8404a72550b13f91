//! Routes to endpoints beside routes to topics.

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{
    away::BROKER,
    broker::{arrived, is_in_order, topic},
    process::Settings,
    stage::{Producer, endpoint_route, settings},
};
use crate::keylane::on_postgres;

/// An endpoint that takes everything, and tells the paths and bodies of what it has taken.
async fn endpoint() -> (String, UnboundedReceiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, taken) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take(BufReader::new(stream), tell.clone()));
        }
    });
    (address, taken)
}

/// Answers request after request, until the client goes.
async fn take(mut stream: BufReader<tokio::net::TcpStream>, tell: UnboundedSender<(String, String)>) {
    loop {
        let (mut line, mut path, mut length) = (String::new(), String::new(), 0);
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let text = line.trim_end().to_ascii_lowercase();
            if let Some(given) = text.strip_prefix("post ") {
                path = given.split(' ').next().unwrap().to_owned();
            }
            if let Some(bytes) = text.strip_prefix("content-length: ") {
                length = bytes.parse().unwrap();
            }
            if text.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let _ = tell.send((path, String::from_utf8(body).unwrap()));
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    }
}

#[tokio::test]
async fn an_event_goes_to_a_topic_and_to_an_endpoint() {
    let _shared = BROKER.read().await;
    on_postgres("relay_webhook", async |url| {
        let (topic, (address, mut taken)) = (topic().await, endpoint().await);
        let text = settings(url, &[("order.placed", &topic)]);
        let to_endpoint = endpoint_route("order.*", &format!("http://{address}/hooks/{{key}}"));
        let file = Settings::new("webhook", &(text + &to_endpoint));
        file.printed(&["migrate"]).await;
        let said = file.printed(&["relay", "--check"]).await;
        assert!(said.contains("1 to topics, 1 to endpoints"), "{said}");
        let relay = file.start().await;
        Producer::connect(url).await.schedule("order.placed", 1, 0, 5).await;
        for number in 0..5 {
            assert_eq!(taken.recv().await.unwrap(), ("/hooks/key-1".to_owned(), number.to_string()));
        }
        is_in_order(&arrived(&topic, 5).await, 1, 5);
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}
