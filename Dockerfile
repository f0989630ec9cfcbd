# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
# The image's own toolchain, without the components that only development needs.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist -p groundplane -p groundplane-sandbox \
    && install -D -t /out target/dist/groundplane target/dist/groundplane-sandbox

FROM debian:bookworm-slim
# Certificate authorities, for the HTTPS of clouds.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates openssl \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 65532 -g 65532 /var/lib/groundplane /run/groundplane
COPY --from=build /out/ /usr/local/bin/
# Gives memory back after a burst: measured at 5,000 Services and 5,000 nodes, 110 MB settled instead of 155.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=131072 MALLOC_MMAP_THRESHOLD_=131072
USER 65532:65532
WORKDIR /var/lib/groundplane
ENTRYPOINT ["groundplane"]
CMD ["--help"]
