//! An endpoint that keeps what it is sent, and answers as it is told.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc};

use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{
        Mutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};
use tokio_rustls::TlsAcceptor;

/// A request as it came.
pub(crate) struct Got {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.parts.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn headers(&self) -> BTreeMap<String, String> {
        let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        self.parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    pub(crate) fn body(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// What an endpoint answers. `None`: nothing, ever.
pub(crate) type Answer = Option<Response<Full<Bytes>>>;

pub(crate) fn answer(status: u16) -> http::response::Builder {
    Response::builder().status(status)
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Mutex<UnboundedReceiver<Got>>,
}

impl Server {
    /// `answers` gets each request.
    pub(crate) async fn start(answers: impl Fn(&Got) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answers)
    }

    pub(crate) fn on(
        listener: TcpListener,
        answers: impl Fn(&Got) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::with(listener, || None, answers)
    }

    /// Speaks TLS. `acceptor` is asked at each connection.
    pub(crate) async fn over_tls(
        acceptor: impl Fn() -> TlsAcceptor + Send + 'static,
        answers: impl Fn(&Got) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::with(listener, move || Some(acceptor()), answers)
    }

    fn with(
        listener: TcpListener,
        acceptor: impl Fn() -> Option<TlsAcceptor> + Send + 'static,
        answers: impl Fn(&Got) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, requests) = unbounded_channel();
        let answers = Arc::new(answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, answers, acceptor) = (sender.clone(), Arc::clone(&answers), acceptor());
                tokio::spawn(async move {
                    let Some(acceptor) = acceptor else { return converse(stream, sender, answers).await };
                    // A client that does not trust the certificate ends its connection.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        converse(stream, sender, answers).await;
                    }
                });
            }
        });
        Self { address, requests: Mutex::new(requests) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next request.
    pub(crate) async fn next(&self) -> Got {
        crate::stage::bounded(async { self.requests.lock().await.recv().await.unwrap() }).await
    }

    /// The bodies of everything that has come and was not taken yet.
    pub(crate) async fn rest(&self) -> Vec<String> {
        let (mut rest, mut requests) = (Vec::new(), self.requests.lock().await);
        while let Ok(got) = requests.try_recv() {
            rest.push(got.body().to_owned());
        }
        rest
    }
}

/// Serves a connection until its client goes away.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    sender: UnboundedSender<Got>,
    answers: Arc<impl Fn(&Got) -> Answer>,
) {
    let service = service_fn(|request: Request<Incoming>| async {
        Ok::<_, Infallible>(serve(request, &sender, &*answers).await)
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn serve(
    request: Request<Incoming>,
    sender: &UnboundedSender<Got>,
    answers: &impl Fn(&Got) -> Answer,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let got = Got { parts, body: body.collect().await.unwrap().to_bytes() };
    let answer = answers(&got);
    let _ = sender.send(got);
    match answer {
        Some(answer) => answer,
        None => std::future::pending().await,
    }
}
