#!/bin/sh
# Makes what the stack of docker-compose.yaml needs to trust itself, in the folder that is its argument: a certificate
# authority, the API server's certificate and signing key, tokens and kubeconfigs. What is there already stays.
set -eu
cd "$1"
umask 077

if [ ! -f done ]; then
    openssl ecparam -name prime256v1 -genkey -noout -out ca.key
    openssl req -x509 -new -key ca.key -days 3650 -subj "/CN=groundplane-compose" -out ca.crt
    openssl ecparam -name prime256v1 -genkey -noout -out apiserver.key
    openssl req -new -key apiserver.key -subj "/CN=kube-apiserver" -out apiserver.csr
    printf '%s\n' "subjectAltName=DNS:kube-apiserver,DNS:localhost,IP:127.0.0.1" "extendedKeyUsage=serverAuth" >apiserver.ext
    openssl x509 -req -in apiserver.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile apiserver.ext \
        -out apiserver.crt
    openssl genrsa -out sa.key 2048
    openssl rand -hex 16 >cloud-token

    admin=$(openssl rand -hex 16)
    gateway=$(openssl rand -hex 16)
    printf '%s\n' "$admin,admin,admin,\"system:masters\"" "$gateway,gateway,gateway,\"system:masters\"" >tokens.csv

    # kubeconfig FILE SERVER TOKEN
    kubeconfig() {
        cat >"$1" <<EOF
apiVersion: v1
kind: Config
current-context: compose
contexts: [{name: compose, context: {cluster: compose, user: compose}}]
clusters: [{name: compose, cluster: {server: "$2", certificate-authority-data: $(base64 <ca.crt | tr -d '\n')}}]
users: [{name: compose, user: {token: "$3"}}]
EOF
    }
    kubeconfig gateway.kubeconfig https://kube-apiserver:6443 "$gateway"
    kubeconfig host.kubeconfig https://localhost:6443 "$admin"
    rm -f apiserver.csr apiserver.ext ca.key ca.srl
    touch done
fi
# The services run as this user, the API server as root.
if [ "$(id -u)" = 0 ]; then
    chown 65532:65532 . cloud-token gateway.kubeconfig host.kubeconfig
    chmod 0711 .
fi
