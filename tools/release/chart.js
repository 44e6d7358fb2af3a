// Packages the chart with the metadata of a release. Plain JavaScript for Node 20, without packages.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { part, run } from './run.js'

/** The repository that Chart.yaml names, which may not be the one that makes the release. */
const namedSource = 'https://github.com/taproot-dev/taproot'
const imagesKey = '  artifacthub.io/images: |\n'

/** Writes `taproot-<version>.tgz`. The chart links to `source`, and lists `image` among its images. */
export function packageChart({ root, output, source = namedSource, image }) {
  const home = mkdtempSync(join(tmpdir(), 'taproot-chart-'))
  try {
    const chart = join(home, 'taproot')
    cpSync(join(root, 'charts', 'taproot'), chart, { recursive: true })
    const file = join(chart, 'Chart.yaml')
    const metadata = readFileSync(file, 'utf8').replaceAll(namedSource, source)
    if (!metadata.includes(imagesKey)) throw new Error(`Chart.yaml has no line ${imagesKey}`)
    writeFileSync(file, metadata.replace(imagesKey, `${imagesKey}    - name: taproot\n      image: ${image}\n`))
    run(part('helm'), ['package', chart, '--destination', output])
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}
