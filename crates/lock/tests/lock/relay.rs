//! A relay between a client and its server: it remembers what is sent, loses an answer, or is away.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

#[derive(Clone)]
pub(crate) struct Relay {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// What each connection has sent, in the order of the connections.
    sent: Mutex<Vec<Vec<u8>>>,
    /// The answer to what has this text will be lost.
    loses: Mutex<Option<String>>,
    has_lost: AtomicBool,
    is_away: watch::Sender<bool>,
}

impl Relay {
    /// A relay to a port of this machine.
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let state = Arc::clone(&relay.state);
        tokio::spawn(async move {
            // The connections end with the test.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if !*state.is_away.borrow() {
                    connections.spawn(pass(Arc::clone(&state), client, server));
                }
            }
        });
        relay
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether a client has ever sent this text.
    pub(crate) fn has_seen(&self, text: &str) -> bool {
        self.state.sent.lock().unwrap().iter().any(|sent| contains(sent, text))
    }

    /// The next question with this text reaches the server. Its answer does not arrive, and the connection ends.
    pub(crate) fn lose_the_answer_to(&self, text: &str) {
        *self.state.loses.lock().unwrap() = Some(text.to_owned());
    }

    /// Whether an answer was lost since this was asked.
    pub(crate) fn has_lost_an_answer(&self) -> bool {
        self.state.has_lost.swap(false, SeqCst)
    }

    /// Ends all connections and takes no new ones, until it comes back.
    pub(crate) fn leave(&self) {
        self.state.is_away.send_replace(true);
    }

    pub(crate) fn come_back(&self) {
        self.state.is_away.send_replace(false);
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
}

async fn pass(state: Arc<State>, mut client: TcpStream, server: u16) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let number = {
        let mut sent = state.sent.lock().unwrap();
        sent.push(Vec::new());
        sent.len() - 1
    };
    let (mut question, mut answer) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut away, mut loses) = (state.is_away.subscribe(), false);
    loop {
        tokio::select! {
            () = async { drop(away.wait_for(|is_away| *is_away).await) } => return,
            read = client.read(&mut question) => match read {
                Ok(length @ 1..) => {
                    let question = &question[..length];
                    state.sent.lock().unwrap()[number].extend(question);
                    let lost = state.loses.lock().unwrap().take_if(|text| contains(question, text));
                    loses |= lost.is_some();
                    if server.write_all(question).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            read = server.read(&mut answer) => match read {
                Ok(1..) if loses => return state.has_lost.store(true, SeqCst),
                Ok(length @ 1..) if client.write_all(&answer[..length]).await.is_ok() => {}
                _ => return,
            },
        }
    }
}
