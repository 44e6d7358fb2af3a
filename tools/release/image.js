// Builds the image of a release. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { arch, env } from 'node:process'
import { part, run } from './run.js'

/** The path in a build of a file with more certificate authorities. */
const authoritiesInBuild = '/extra-ca.pem'
/** OVERLAYFS_SUPER_MAGIC of linux/magic.h */
const overlayType = 0x794c7630

/**
 * Builds the image for the platforms with `docker buildx`, or with buildah where that is missing. Writes the folder `image`, an OCI layout, and
 * `taproot-<version>-image.tar` with the same content.
 */
export function buildImage({ root, output, version, platforms, base }) {
  const layout = join(output, 'image')
  const revision = run('git', ['-C', root, 'rev-parse', 'HEAD'])
  const settings = { VERSION: version, REVISION: revision, ...(base !== undefined && { BASE: base }) }
  const build = spawnSync('docker', ['buildx', 'version']).status === 0 ? withBuildx : withBuildah
  build({ root, layout, platforms, settings })
  run('tar', ['--create', `--file=${join(output, `taproot-${version}-image.tar`)}`, `--directory=${layout}`, '.'])
}

/** Inside most containers no layers can be overlaid. */
function storageDriver() {
  return statfsSync(tmpdir()).type === overlayType ? 'vfs' : 'overlay'
}

function flagsOf(settings) {
  return Object.entries(settings).flatMap(([name, value]) => ['--build-arg', `${name}=${value}`])
}

function withBuildx({ root, layout, platforms, settings }) {
  const output = ['--output', `type=oci,dest=${layout},tar=false`, '--provenance=false']
  run('docker', ['buildx', 'build', '--platform', platforms.join(','), ...output, ...flagsOf(settings), root])
}

function withBuildah({ root, layout, platforms, settings }) {
  const home = mkdtempSync(join(tmpdir(), 'taproot-release-'))
  const storage = ['--root', join(home, 'storage'), '--runroot', join(home, 'run'), '--storage-driver', storageDriver()]
  const buildah = (...args) => run(part('buildah'), [...storage, ...args])
  const authorities = env.NODE_EXTRA_CA_CERTS
  const trust = authorities === undefined ? {} : { NODE_EXTRA_CA_CERTS: authoritiesInBuild }
  const volume = authorities === undefined ? [] : ['--volume', `${authorities}:${authoritiesInBuild}:ro`]
  try {
    for (const platform of platforms) {
      const own = { BUILDPLATFORM: `linux/${arch === 'x64' ? 'amd64' : arch}`, TARGETARCH: platform.split('/')[1] }
      const flags = ['--isolation', 'chroot', '--format', 'oci', ...flagsOf({ ...settings, ...trust, ...own }), ...volume]
      // Otherwise it takes the base image of the platform before.
      buildah('build', '--pull-always', '--platform', platform, '--manifest', 'taproot', ...flags, root)
    }
    buildah('manifest', 'push', '--all', 'taproot', `oci:${layout}`)
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

/** Returns the digest of the built image: of an index if it has several platforms. */
export function imageDigest(output) {
  return rootOf(output).digest
}

/** Returns the manifests of the built image, one for each platform, each with the paths of its layers. */
export function imageManifests(output) {
  const top = rootOf(output)
  const read = ({ digest }) => JSON.parse(readFileSync(blobFile(output, digest), 'utf8'))
  const manifests = top.mediaType.includes('index') ? read(top).manifests : [top]
  return manifests.map((manifest) => ({ ...manifest, layers: read(manifest).layers.map(({ digest }) => blobFile(output, digest)) }))
}

function rootOf(output) {
  const { manifests } = JSON.parse(readFileSync(join(output, 'image', 'index.json'), 'utf8'))
  if (manifests.length !== 1) throw new Error(`the image has ${manifests.length} roots`)
  return manifests[0]
}

function blobFile(output, digest) {
  return join(output, 'image', 'blobs', digest.replace(':', '/'))
}
