//! An endpoint that notes what it is sent and answers as it is told.

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
    net::TcpListener,
    sync::{
        Mutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

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
        let address = listener.local_addr().unwrap();
        let (sender, requests) = unbounded_channel();
        let answers = Arc::new(answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, answers) = (sender.clone(), Arc::clone(&answers));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (sender, answers) = (sender.clone(), Arc::clone(&answers));
                    async move { Ok::<_, Infallible>(serve(request, &sender, &*answers).await) }
                });
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    // A client that goes away ends its connection.
                    let _ = connection.await;
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

async fn serve(
    request: Request<Incoming>,
    sender: &UnboundedSender<Got>,
    answers: &(impl Fn(&Got) -> Answer + ?Sized),
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
