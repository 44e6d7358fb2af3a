// Takes the list of packages from the image of a release. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { imageManifests } from './image.js'

const pathInImage = 'opt/taproot/sbom.cdx.json'

/** Writes `sbom.cdx.json`. Throws if the images of two platforms have different packages. */
export function writeSbom(output) {
  const lists = imageManifests(output).map(({ layers }) => layers.map(listIn).find((text) => text !== undefined))
  const [first] = lists
  if (first === undefined) throw new Error(`the image has no ${pathInImage}`)
  if (lists.some((list) => list === undefined || packagesOf(list) !== packagesOf(first))) throw new Error('the images of two platforms have different packages')
  writeFileSync(join(output, 'sbom.cdx.json'), first)
}

/** Returns the list in a layer, if it has one. */
function listIn(layer) {
  const { status, stdout } = spawnSync('tar', ['--extract', '--to-stdout', `--file=${layer}`, pathInImage], { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
  return status === 0 && stdout !== '' ? stdout : undefined
}

function packagesOf(list) {
  return JSON.parse(list)
    .components.map(({ name, version }) => `${name}@${version}`)
    .sort()
    .join('\n')
}
