#!/bin/sh
# Certificates for a fleet, in the present folder: sh certificates.sh BROKER_HOST DEVICE...
# The CA is made once, and is found again for devices that come later; keep ca.key to yourself, offline if you can.
set -eu
host=$1; shift

signed() { # NAME, and further lines of its certificate: a key, and a certificate by our CA
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" \
    -keyout "$1.key" -out "$1.csr" 2> /dev/null
  echo "$2" | openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 \
    -extfile /dev/stdin -out "$1.pem" 2> /dev/null
  rm "$1.csr"
}

if [ ! -e ca.key ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=Hinge fleet CA" \
    -keyout ca.key -out ca.pem 2> /dev/null
fi
case $host in
  *[!0-9.]*) name=DNS:$host ;;
  *) name=IP:$host ;;
esac
[ -e broker.pem ] || signed broker "subjectAltName=$name"
for device in "$@"; do
  signed "$device" "extendedKeyUsage=clientAuth"
done
chmod 600 ./*.key
