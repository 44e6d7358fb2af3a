/**
 * A process of its own for the tests that kill it. `disk-child.ts <directory> <uid>` opens the embedded upstream and prints `open`.
 * Then it puts blobs (whole, in chunks, or mounted from another repo) and manifests, four at once, until it is killed.
 * It prints each as `blob <uid> <digest>` once it is acknowledged.
 */
import { randomBytes, randomInt } from 'node:crypto'
import { writeSync } from 'node:fs'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid, type Uid } from '../../../src/base/uid.ts'
import { createDiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { bodyOf, never } from './content.ts'

const [directory = '', root = ''] = process.argv.slice(2)
const print = (line: string): void => void writeSync(1, `${line}\n`)
const upstream = await createDiskUpstream({ directory, clock: Date, random: { bytes: randomBytes } })
print('open')
await Promise.all(Array.from({ length: 4 }, (_, lane) => work(trustedUid(`${root}/${String(lane).repeat(16)}`))))

async function work(repo: Uid): Promise<never> {
  const other = trustedUid(`${repo}/${'f'.repeat(16)}`)
  for (;;) {
    const pieces = Array.from({ length: randomInt(1, 5) }, () => randomBytes(randomInt(1, 300_000)))
    const whole = Buffer.concat(pieces)
    const digest = digestOf(whole, randomInt(2) === 0 ? 'sha256' : 'sha512')
    let { state } = await upstream.startUpload(repo, never)
    for (const piece of pieces.slice(1)) ({ state } = await upstream.appendUpload(repo, { state, chunk: { body: bodyOf(piece) } }, never))
    const [first, ...rest] = pieces
    if (rest.length === 0) await upstream.finishUpload(repo, { state, digest, chunk: { body: bodyOf(first!) } }, never)
    else await upstream.finishUpload(repo, { state, digest: digestOf(Buffer.concat(rest)) }, never)
    const named = rest.length === 0 ? digest : digestOf(Buffer.concat(rest))
    print(`blob ${repo} ${named}`)
    if (await upstream.mountBlob(other, { digest: named, from: repo }, never)) print(`blob ${other} ${named}`)
    const manifest = Buffer.from(JSON.stringify({ layers: [{ digest: named }] }))
    await upstream.putManifest(repo, { digest: digestOf(manifest), mediaType: 'application/vnd.oci.image.manifest.v1+json', bytes: manifest }, never)
    print(`manifest ${repo} ${digestOf(manifest)}`)
  }
}
