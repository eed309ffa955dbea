# Both programs in one image, on nothing: static, non-root, no shell. Plain Dockerfile instructions only, so that it
# builds without a daemon too:
#   docker build --tag clusterdns:0.1.0 .
#   buildah build --tag clusterdns:0.1.0 .
# On musl, Rust links the C library into the program; that a program is static is checked before it is copied.
ARG RUST=1.95
FROM rust:${RUST}-alpine AS build
# A C compiler and headers for ring, make for what brings its own makefile, file to look at the result.
RUN apk add --no-cache musl-dev gcc make file
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package operator --package dataplane \
      --bin clusterdns-operator --bin clusterdns-dataplane \
 && mkdir /out \
 && cp target/release/clusterdns-operator target/release/clusterdns-dataplane /out/ \
 && file /out/clusterdns-operator | grep -E 'statically linked|static-pie linked' \
 && file /out/clusterdns-dataplane | grep -E 'statically linked|static-pie linked'

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="ClusterDNS" \
      org.opencontainers.image.description="DNS for Kubernetes clusters: the operator and the data plane" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/clusterdns-operator /clusterdns-operator
COPY --from=build /out/clusterdns-dataplane /clusterdns-dataplane
COPY LICENSE /LICENSE
# A number, which is what `runAsNonRoot` can check.
USER 65532:65532
# Each pod names the program it runs.
ENTRYPOINT ["/clusterdns-operator"]
CMD ["run"]
