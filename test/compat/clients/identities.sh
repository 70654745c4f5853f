# What servers and clients of the tours prove themselves with; run reads this file.
#
#   ann       user, with the password in $password
#   service   user, with the nkey in service.nk
#   gateway   user, with the certificate client.crt
#
# All may publish on everything but denied.>. There are also the nkey stranger.nk, the certificate
# stranger.crt, and its CA other-ca.crt, which no server knows.
# shellcheck shell=bash

password=secret

# make_users DIR: makes nkeys, users.json for Carillon, and users.conf for nats-server
make_users() {
  local hash service
  hash=$("$carillon" user hash <<<"$password")
  make_nkey "$1/stranger" >/dev/null
  service=$(make_nkey "$1/service")
  cat >"$1/users.json" <<END
{
  "users": [
    {"name": "ann", "passwords": ["$hash"]},
    {"name": "service", "nkeys": ["$service"]},
    {"name": "gateway", "certificates": ["CN=gateway"]}
  ],
  "defaultPermissions": {"publish": {"deny": ["denied.>"]}}
}
END
  cat >"$1/users.conf" <<END
authorization {
  default_permissions { publish { deny: ["denied.>"] } }
  users: [
    { user: "ann", password: "$hash" }
    { nkey: "$service" }
    { user: "CN=gateway" }
  ]
}
END
}

# make_nkey PATH: writes the seed to PATH.nk and prints the public key
make_nkey() {
  "$carillon" user nkey >"$1"
  sed -n 's/^seed .*: *//p' "$1" | tr -d '\n' >"$1.nk"
  sed -n 's/^nkeys .*: *//p' "$1"
}

# quietly COMMAND...: its output is shown only if it fails
quietly() {
  local output
  output=$("$@" 2>&1) || { printf '%s\n' "$*" "$output" >&2; return 1; }
}

# make_authority PATH NAME: makes a CA, PATH.crt and PATH.key
make_authority() {
  quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.crt" \
    -days 30 -subj "/CN=$2" -addext keyUsage=critical,keyCertSign,cRLSign
}

# make_certificate CA PATH NAME [EXTENSIONS]: makes PATH.crt and PATH.key, signed by CA.key
make_certificate() {
  printf '%s\n' basicConstraints=critical,CA:false keyUsage=critical,digitalSignature \
    subjectKeyIdentifier=hash authorityKeyIdentifier=keyid "${@:4}" >"$2.extensions"
  quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$2.key" -out "$2.csr" -subj "/CN=$3"
  quietly openssl x509 -req -in "$2.csr" -CA "$1.crt" -CAkey "$1.key" -CAcreateserial -days 30 \
    -extfile "$2.extensions" -out "$2.crt"
}

# make_client_certificates DIR CA: makes client.crt, signed by CA.key, and stranger.crt
make_client_certificates() {
  make_certificate "$2" "$1/client" gateway extendedKeyUsage=clientAuth
  make_authority "$1/other-ca" other
  make_certificate "$1/other-ca" "$1/stranger" gateway extendedKeyUsage=clientAuth
}
