// Finds, builds, fetches or installs the real programs that tests run against. Plain JavaScript for Node 20, without packages.
// Usage: node tools/parts.js etcd grpcurl
import { existsSync } from 'node:fs'
import { argv, env, platform, stdout } from 'node:process'
import { pathToFileURL } from 'node:url'
import { provideBaseImage } from './provide/base-image.js'
import { provideByDebian } from './provide/debian.js'
import { provideByGo } from './provide/go.js'
import { provideByNpm } from './provide/npm.js'
import { findInstalled } from './provide/program.js'
import { provideByPython } from './provide/python.js'
import { provideSchema } from './provide/schema.js'

/** Returns the folder of a sample receiver in the documentation. */
const receiver = (language) => `../../docs/examples/receivers/${language}`
/** Returns the source of a program of Kubernetes itself. */
const kubernetes = (name) => ({ goPackage: `k8s.io/kubernetes/cmd/${name}`, folder: 'kubernetes', kubernetesVersion: true })
/** Returns the source of a program of containerd. An installed version may be too old for the kubelet of the tests. */
const containerd = (name) => ({ goPackage: `github.com/containerd/containerd/v2/cmd/${name}`, folder: 'containerd', pinnedOnly: true, linuxOnly: true })

/**
 * The source of each part.
 * - `goPackage`: the Go package of its program, built in tools/parts/`folder`, whose go.mod pins the version. The default folder has the
 *   part's name. `.` is a program of this repository in that folder.
 * - `debianPackage`: a package to install with apt.
 * - `archive`: an archive in the npm package that tools/parts/`folder` pins.
 * - `python`: the minimum version of Python, for the packages that requirements.txt in the folder pins.
 * - `file`: a JSON schema in a Go module or a Python package, with the hash of its content.
 * - `provide`: a function that provides the part.
 */
const parts = {
  actionlint: { goPackage: 'github.com/rhysd/actionlint/cmd/actionlint' },
  'base-image': { linuxOnly: true, provide: provideBaseImage },
  // For images of another processor than this one.
  'base-image-arm64': { linuxOnly: true, provide: (name) => provideBaseImage(name, { architecture: 'arm64' }) },
  buildah: { debianPackage: 'buildah' },
  'cni-plugins': { debianPackage: 'containernetworking-plugins', program: 'host-local', directories: ['/usr/lib/cni', '/opt/cni/bin'] },
  collector: { goPackage: '.' },
  'compose-config': { goPackage: '.' },
  containerd: containerd('containerd'),
  'containerd-shim-runc-v2': containerd('containerd-shim-runc-v2'),
  coredns: { goPackage: 'github.com/coredns/coredns' },
  cosign: { goPackage: 'github.com/sigstore/cosign/v3/cmd/cosign' },
  crane: { goPackage: 'github.com/google/go-containerregistry/cmd/crane' },
  ctr: containerd('ctr'),
  // The file bom-1.6.schema.json of github.com/CycloneDX/specification at commit b29bae6.
  'cyclonedx-schema': {
    file: 'cyclonedx/schema/_res/bom-1.6.SNAPSHOT.schema.json',
    sha256: '83821ba49aa366ad1f1d16c34837d05edd010f036f652e310db1c77d57b37c58',
  },
  debootstrap: { debianPackage: 'debootstrap' },
  etcd: { goPackage: 'go.etcd.io/etcd/server/v3' },
  etcdctl: { goPackage: 'go.etcd.io/etcd/etcdctl/v3' },
  etcdutl: { goPackage: 'go.etcd.io/etcd/etcdutl/v3' },
  fish: { debianPackage: 'fish' },
  'gitops-health': { goPackage: '.' },
  'go-versions': { goPackage: '.' },
  grpcurl: { goPackage: 'github.com/fullstorydev/grpcurl/cmd/grpcurl' },
  helm: { folder: 'kubectl-layer', archive: 'lib/layer.zip', entry: 'helm/helm' },
  'history-checker': { goPackage: '.' },
  ip: { debianPackage: 'iproute2' },
  'kube-apiserver': kubernetes('kube-apiserver'),
  'kube-controller-manager': kubernetes('kube-controller-manager'),
  'kube-proxy': { ...kubernetes('kube-proxy'), linuxOnly: true },
  'kube-scheduler': kubernetes('kube-scheduler'),
  kubectl: { folder: 'kubectl-layer', archive: 'lib/layer.zip', entry: 'kubectl/kubectl' },
  kubelet: { ...kubernetes('kubelet'), linuxOnly: true },
  nft: { debianPackage: 'nftables' },
  nsenter: { debianPackage: 'util-linux' },
  'oapi-codegen': { goPackage: 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen' },
  'oci-conformance': { goPackage: 'github.com/opencontainers/distribution-spec/conformance' },
  'openapi-checkers': { python: '3.11' },
  'openapi-python-client': { python: '3.11' },
  // The file openvex_json_schema.json of github.com/openvex/spec at commit a68ccd1.
  'openvex-schema': { file: 'fixproof/schemas/official/openvex.schema.json', sha256: '9373597734ed1d3ea5161a8b46d3866c4a8cfe76fd632fdd16aef01fb34b3238' },
  oras: { goPackage: 'oras.land/oras/cmd/oras' },
  'osv-scanner': { goPackage: 'github.com/google/osv-scanner/cmd/osv-scanner', pinnedOnly: true },
  'osv-schema': {
    goModule: 'github.com/ossf/osv-schema',
    file: 'validation/schema.json',
    sha256: 'cdb8292f72945cfdf06d3e044280d7c0867105a3a1ae6d4547c983eba20810a2',
  },
  pause: { goPackage: '.', linuxOnly: true },
  podman: { debianPackage: 'podman' },
  'receiver-go': { goPackage: '.', folder: receiver('go') },
  'receiver-python': { python: '3.11', folder: receiver('python') },
  regctl: { goPackage: 'github.com/regclient/regclient/cmd/regctl' },
  // Other programs have this name too, so an installed one is not used.
  registry: { goPackage: 'github.com/distribution/distribution/v3/cmd/registry', pinnedOnly: true },
  rpm: { debianPackage: 'rpm' },
  runc: { debianPackage: 'runc' },
  'scim2-tester': { python: '3.11' },
  skopeo: { debianPackage: 'skopeo' },
  syft: { goPackage: 'github.com/anchore/syft/cmd/syft' },
  zsh: { debianPackage: 'zsh' },
}

/**
 * Returns the path of the part's program as `{ path }`: an installed one, one of envtest's binaries, or one in the cache outside the
 * checkout. If it is missing, builds it with Go, fetches it with npm, or installs it, once. Returns `{ reason }`, one line, if the machine
 * cannot provide it. Blocks meanwhile.
 */
export function ensurePart(name) {
  const part = parts[name]
  if (part === undefined) throw new TypeError(`no such part: ${name}`)
  if ((part.linuxOnly || 'debianPackage' in part) && platform !== 'linux') return { reason: `${name} runs on Linux only` }
  if ('provide' in part) return part.provide(name)
  if ('debianPackage' in part) return provideByDebian(name, part)
  if ('archive' in part) return provideByNpm(name, part)
  if ('file' in part) return provideSchema(name, part)
  if ('python' in part) return provideByPython(name, { folder: part.folder, minimum: part.python })
  const found = part.goPackage === '.' || part.pinnedOnly ? undefined : findInstalled(name)
  return found === undefined ? provideByGo(name, part) : { path: found, built: false }
}

/** Prints one line per part, unless all exist already. A missing part is an error only with REQUIRE_ALL_PARTS=1. */
function main(names) {
  const results = names.map((name) => ({ name, ...ensurePart(name) }))
  if (results.every((result) => result.built === false)) return
  for (const { name, path, reason } of results) stdout.write(path === undefined ? `missing: ${reason}; its tests are skipped\n` : `${name}: ${path}\n`)
  if (env.REQUIRE_ALL_PARTS === '1' && results.some((result) => result.path === undefined)) process.exitCode = 1
}

if (argv[1] !== undefined && existsSync(argv[1]) && import.meta.url === pathToFileURL(argv[1]).href) main(argv.slice(2))
