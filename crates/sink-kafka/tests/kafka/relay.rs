//! A relay that says that there are no brokers. A client may forget all of its brokers then, and never connect again
//! (librdkafka, issue 5301).

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    sync::watch,
};

use crate::broker;

const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;

/// A relay to the broker, to which it leads each client back. Asked to, it says that there are no brokers.
#[derive(Default)]
pub(crate) struct Relay {
    /// Whether the answers about topics name no brokers.
    pub(crate) denies: AtomicBool,
    /// The number of open connections.
    connections: watch::Sender<usize>,
}

impl Relay {
    /// Makes the client forget its brokers. It then closes its connections and asks for nothing any more.
    ///
    /// The client has learned the brokers before, and must not begin anew with its address, as it mostly does
    /// (`metadata.recovery.strategy`).
    pub(crate) async fn until_forgotten(&self) {
        let mut connections = self.connections.subscribe();
        self.denies.store(true, Relaxed);
        connections.wait_for(|open| *open == 0).await.unwrap();
        self.denies.store(false, Relaxed);
    }

    /// Returns its address.
    pub(crate) async fn start(self: Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let relay = Arc::clone(&self);
                tokio::spawn(async move {
                    relay.connections.send_modify(|open| *open += 1);
                    let _ = relay.pass(client, address.port()).await;
                    relay.connections.send_modify(|open| *open -= 1);
                });
            }
        });
        address.to_string()
    }

    /// Passes on what both sides send, until one of them ends.
    async fn pass(&self, client: TcpStream, port: u16) -> io::Result<()> {
        let (mut client_reads, mut client_writes) = client.into_split();
        let (mut server_reads, mut server_writes) = TcpStream::connect(broker::address()).await?.into_split();
        let asked = Mutex::new(BTreeMap::new());
        let requests = async {
            loop {
                let request = frame(&mut client_reads).await?;
                let what = i16::from_be_bytes(number(&request, 0));
                asked.lock().unwrap().insert(number::<4>(&request, 4), what);
                server_writes.write_all(&framed(&request)).await?;
            }
        };
        let answers = async {
            loop {
                let mut answer = frame(&mut server_reads).await?;
                match asked.lock().unwrap().remove(&number(&answer, 0)) {
                    Some(METADATA) => answer = self.told(&answer, port),
                    // The port comes last.
                    Some(FIND_COORDINATOR) => {
                        answer.truncate(answer.len() - 4);
                        answer.extend(i32::from(port).to_be_bytes());
                    }
                    _ => {}
                }
                client_writes.write_all(&framed(&answer)).await?;
            }
        };
        tokio::select! {
            ended = requests => ended,
            ended = answers => ended,
        }
    }

    /// The metadata with the port of the relay for that of the broker, or without brokers.
    fn told(&self, metadata: &[u8], port: u16) -> Vec<u8> {
        // The id of the request, no tags, and a throttle time.
        let mut at = 4 + 1 + 4;
        let (mut told, brokers) = (metadata[..at].to_vec(), metadata[at]);
        let mut led = Vec::new();
        at += 1;
        // A count and a length are one higher than what follows; 0 is null.
        for _ in 1..brokers {
            let host = at + 4;
            let place = host + usize::from(metadata[host]);
            let rack = place + 4;
            led.extend(&metadata[at..place]);
            led.extend(i32::from(port).to_be_bytes());
            at = rack + usize::from(metadata[rack].max(1)) + 1;
            led.extend(&metadata[rack..at]);
        }
        let topics = at + usize::from(metadata[at].max(1)) + 4;
        if metadata[topics] > 1 && self.denies.load(Relaxed) {
            told.push(1);
        } else {
            told.push(brokers);
            told.append(&mut led);
        }
        told.extend(&metadata[at..]);
        told
    }
}

fn number<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame[at..at + N].try_into().unwrap()
}

async fn frame(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    let length = from.read_u32().await?;
    copy(&mut from.take(u64::from(length)), &mut frame).await?;
    Ok(frame)
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes(), frame].concat()
}
