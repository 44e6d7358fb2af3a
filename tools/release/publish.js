// Publishes a release, or prints how. Plain JavaScript for Node 20, without packages.
import { join } from 'node:path'
import { stdout } from 'node:process'
import { part, run } from './run.js'

/**
 * Pushes image and chart, signs them with the identity of the CI job, and attaches the list of packages to the image. A dry run prints the
 * commands instead. Returns the digests `image` and `chart`.
 */
export function publish({ output, version, registry, digest, isDryRun }) {
  const call = isDryRun ? printCommand : (name, args) => run(part(name), args)
  const image = `${registry}/taproot`
  const chart = `${registry}/charts/taproot`
  call('crane', ['push', join(output, 'image'), `${image}:${version}`])
  call('helm', ['push', join(output, `taproot-${version}.tgz`), `oci://${registry}/charts`])
  const chartDigest = call('crane', ['digest', `${chart}:${version}`])
  for (const reference of [`${image}@${digest}`, `${chart}@${chartDigest}`]) call('cosign', ['sign', '--yes', reference])
  call('cosign', ['attest', '--yes', '--type', 'cyclonedx', '--predicate', join(output, 'sbom.cdx.json'), `${image}@${digest}`])
  const sums = join(output, 'SHA256SUMS')
  call('cosign', ['sign-blob', '--yes', '--bundle', `${sums}.sigstore.json`, sums])
  return { image: digest, chart: chartDigest }
}

function printCommand(name, args) {
  stdout.write(`would run: ${name} ${args.join(' ')}\n`)
  return 'sha256:…'
}
