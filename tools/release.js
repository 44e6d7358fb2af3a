// Makes a release: checks its version, writes the files of the release into a folder, and publishes them. `--dry-run` publishes nothing and
// prints the commands that would. docs/contributing/releasing.md describes it. Plain JavaScript for Node 20, without packages.
import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { env, exit, stdout } from 'node:process'
import { parseArgs } from 'node:util'
import { packageChart } from './release/chart.js'
import { writeChecksums } from './release/checksums.js'
import { buildImage, imageDigest } from './release/image.js'
import { publish } from './release/publish.js'
import { writeSbom } from './release/sbom.js'
import { releaseNotes, versionFaults, versionOf } from './release/version.js'

const root = join(import.meta.dirname, '..')
const usage = `Usage: node tools/release.js [options]

  --dry-run            publish nothing; print the commands that would
  --tag <tag>          the tag of the release, such as v0.2.0; GITHUB_REF_NAME by default
  --registry <name>    where image and chart go, such as ghcr.io/<owner>
  --source <URL>       the repository on the hosting site, for the metadata of the chart
  --output <folder>    where the files go; dist/release by default
  --platforms <list>   kinds of machines of the image; linux/amd64,linux/arm64 by default
  --base <image>       the base image; that of the Dockerfile by default
  --without-image      leave out the image and its list of packages
`

const { values } = parseArgs({
  options: {
    'dry-run': { type: 'boolean', default: false },
    tag: { type: 'string', default: env.GITHUB_REF_NAME },
    registry: { type: 'string' },
    source: { type: 'string' },
    output: { type: 'string', default: join(root, 'dist', 'release') },
    platforms: { type: 'string', default: 'linux/amd64,linux/arm64' },
    base: { type: 'string' },
    'without-image': { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
if (values.help) {
  stdout.write(usage)
  exit(0)
}
release({ ...values, isDryRun: values['dry-run'], hasImage: !values['without-image'], output: resolve(values.output) })

function release({ isDryRun, tag, registry, source, output, platforms, base, hasImage }) {
  if (registry === undefined) fail(['--registry is missing'])
  if (!isDryRun && !hasImage) fail(['a release has an image: --without-image needs --dry-run'])
  fail(versionFaults(root, { tag, isDryRun }))
  const version = versionOf(root)
  // Registries accept lower case only.
  const place = registry.toLowerCase()
  rmSync(output, { recursive: true, force: true })
  mkdirSync(output, { recursive: true })
  packageChart({ root, output, source, image: `${place}/taproot:${version}` })
  if (hasImage) {
    buildImage({ root, output, version, platforms: platforms.split(','), base })
    writeSbom(output)
  }
  writeChecksums(output)
  // The notes are no file of the release but its text.
  writeFileSync(join(output, 'release-notes.md'), releaseNotes(root, version))
  const digests = publish({ output, version, registry: place, digest: hasImage ? imageDigest(output) : 'sha256:…', isDryRun })
  if (env.GITHUB_OUTPUT !== undefined)
    for (const [name, value] of Object.entries({ registry: place, ...digests })) appendFileSync(env.GITHUB_OUTPUT, `${name}=${value}\n`)
}

/** Ends with the faults, if there are any. */
function fail(faults) {
  if (faults.length === 0) return
  for (const fault of faults) process.stderr.write(`${fault}\n`)
  exit(1)
}
