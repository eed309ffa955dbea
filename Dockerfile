# Both programs in one image, on nothing: static, non-root, no shell. `make image` builds it with docker, podman or
# buildah; plain instructions only, so that it builds without a daemon too:
#   docker build --tag clusterdns:0.1.0 .
#   buildah build --tag clusterdns:0.1.0 .
# Static against glibc and not musl, whose allocator is why: docs/image.md.
ARG RUST=1.95.0
FROM rust:${RUST}-slim-trixie AS build
# The licences of all that is linked in are part of the image, and the programs list their dependencies for scanners.
ARG ABOUT=0.9.3
ARG AUDITABLE=0.7.7
RUN cargo install --quiet --locked --root /tools --features cli "cargo-about@${ABOUT}" \
 && cargo install --quiet --debug --locked --root /tools "cargo-auditable@${AUDITABLE}"
WORKDIR /source
COPY . .
# The metric clusterdns_build_info shows it.
ARG REVISION=""
# With an explicit target the flag is for the programs alone; without, procedural macros would get it and not load.
# Without debug information, which is three quarters of a program; names of functions stay, for backtraces.
# A program that asks for an interpreter or a library would not start on an empty root: that is looked at here.
RUN target="$(rustc --print host-tuple)" \
 && export RUSTFLAGS='-C target-feature=+crt-static' CARGO_PROFILE_RELEASE_DEBUG=false \
 && export CLUSTERDNS_REVISION="$REVISION" \
 && export PATH="/tools/bin:$PATH" \
 && cargo auditable build --release --locked --target "$target" \
      --package operator --bin clusterdns-operator --package dataplane --bin clusterdns-dataplane \
 && mkdir /out \
 && for program in clusterdns-operator clusterdns-dataplane; do \
      cp "target/$target/release/$program" /out/ || exit 1; \
      if readelf --wide --program-headers --dynamic "/out/$program" | grep -E 'INTERP|NEEDED'; then \
        echo "$program is not static"; exit 1; \
      fi; \
    done \
 && cargo fetch --locked && .ci/third-party /out/THIRD-PARTY.html

# A release gives the programs it has built itself for this stage: .ci/release replaces the stage above by a folder.
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
COPY --from=build /out/THIRD-PARTY.html /THIRD-PARTY.html
COPY LICENSE /LICENSE
# A number, which is what `runAsNonRoot` can check.
USER 65532:65532
# Each pod names the program it runs.
ENTRYPOINT ["/clusterdns-operator"]
CMD ["run"]
