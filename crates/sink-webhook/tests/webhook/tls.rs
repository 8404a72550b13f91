//! Endpoints with certificates: which are sent to, and what is said of the others.

use std::{
    env, fs,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use keylane::{Signal, admin::Filter};
use keylane_webhook::{Route, WebhookSink};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::{
    server::{Server, answer},
    stage::{Stage, config},
};

/// Where a process of [`roots`] finds the only root certificate that it trusts.
const ROOTS: &str = "SSL_CERT_FILE";
/// Tells such a process from one whose user has set the variable.
const ALONE: &str = "KEYLANE_WEBHOOK_TEST_ALONE";

/// An authority that this process trusts, and no other. A sink finds its roots by the environment, which a process
/// cannot safely change for itself: the test of this name runs once more in a process of its own. `None` is for the
/// process that has waited for it.
fn trusted(test: &str) -> Option<Authority> {
    if env::var_os(ALONE).is_some() {
        let authority = authority("trusted");
        fs::write(env::var_os(ROOTS).unwrap(), authority.pem()).unwrap();
        return Some(authority);
    }
    let roots = env::temp_dir().join(format!("keylane-webhook-{}-{test}.pem", std::process::id()));
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("tls::{test}"), "--exact", "--nocapture"]).env(ROOTS, &roots).env(ALONE, "1");
    let done = command.output().unwrap();
    fs::remove_file(&roots).unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    None
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server's side of TLS, with a certificate of this authority.
fn acceptor(authority: &Authority, params: CertificateParams) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn named(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

fn sink(address: SocketAddr) -> WebhookSink {
    let route = Route::to(format!("https://localhost:{}/hooks/T0KEN", address.port()));
    WebhookSink::new(config()).unwrap().route(route)
}

/// What the lane that waits for the endpoint has as its last error.
async fn told(stage: &mut Stage) -> String {
    stage.until(|signal| matches!(signal, Signal::TargetUnavailable { .. })).await;
    loop {
        let lanes = stage.outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
        if let Some(error) = lanes.into_iter().find_map(|lane| lane.last_error) {
            return error;
        }
        stage.until(|signal| matches!(signal, Signal::Settled { .. })).await;
    }
}

#[tokio::test]
async fn an_endpoint_with_a_trusted_certificate_is_sent_to() {
    let Some(authority) = trusted("an_endpoint_with_a_trusted_certificate_is_sent_to") else { return };
    let good = acceptor(&authority, named("localhost"));
    let server = Server::over_tls(move || good.clone(), |_| answer(200).body("".into()).ok()).await;
    let mut stage = Stage::of(sink(server.address)).await;
    stage.schedule((0..3).map(|number| ("key-1".to_owned(), number.to_string()))).await;
    stage.until_idle().await;
    assert_eq!(server.rest().await, ["0", "1", "2"]);
    stage.end().await;
}

#[tokio::test]
async fn without_a_good_certificate_an_endpoint_is_away_until_it_has_one() {
    let name = "without_a_good_certificate_an_endpoint_is_away_until_it_has_one";
    let Some(authority) = trusted(name) else { return };
    let mut expired = named("localhost");
    expired.not_after = date_time_ymd(2020, 1, 1);
    let table = [
        (acceptor(&self::authority("unknown"), named("localhost")), "UnknownIssuer"),
        (acceptor(&authority, expired), "expired"),
        (acceptor(&authority, named("hooks.example.com")), "not valid for name"),
    ];
    for (bad, problem) in table {
        let (good, renewed) = (acceptor(&authority, named("localhost")), Arc::new(AtomicBool::new(false)));
        let is_renewed = Arc::clone(&renewed);
        let acceptor = move || if is_renewed.load(SeqCst) { good.clone() } else { bad.clone() };
        let server = Server::over_tls(acceptor, |_| answer(200).body("".into()).ok()).await;
        let mut stage = Stage::of(sink(server.address)).await;
        stage.schedule_one("1").await;
        let error = told(&mut stage).await;
        let expected = format!("https://localhost:{} cannot be reached: ", server.address.port());
        assert!(error.starts_with(&expected) && error.contains(problem), "{error}");
        assert!(!error.contains("T0KEN"), "{error}");
        assert!(server.rest().await.is_empty(), "something was sent before the certificate was looked at");
        renewed.store(true, SeqCst);
        stage.until_idle().await;
        assert_eq!((server.rest().await.len(), stage.counted_retries()), (1, 0));
        stage.end().await;
    }
}

#[tokio::test]
async fn a_redirect_out_of_tls_is_not_followed() {
    let Some(authority) = trusted("a_redirect_out_of_tls_is_not_followed") else { return };
    let other = Server::start(|_| answer(200).body("".into()).ok()).await;
    let target = other.url("/");
    let good = acceptor(&authority, named("localhost"));
    let redirect = move |_: &_| answer(307).header("location", &target).body("".into()).ok();
    let server = Server::over_tls(move || good.clone(), redirect).await;
    // The settings allow what is sent to by http as well: it is the redirect that is not followed.
    let mut stage = Stage::of(sink(server.address)).await;
    stage.schedule_one("1").await;
    assert!(stage.failure().await.contains("answered 307"));
    assert!(other.rest().await.is_empty());
    stage.end().await;
}
