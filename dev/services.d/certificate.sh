# Certificates of the servers that offer TLS. Sourced by dev/services.

# make_certificate NAME FOLDER: key.pem and certificate.pem of 127.0.0.1. The certificate is its own authority, and
# no authority for others: rustls refuses the certificate of an authority as that of a server.
make_certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=127.0.0.1 \
    -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
    -keyout "$2/key.pem" -out "$2/certificate.pem" 2>"$S/$1/init.log" ||
    { tail -n 20 "$S/$1/init.log" >&2; fail "$1: no certificate"; }
}
