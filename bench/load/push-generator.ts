import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Agent, request, type IncomingMessage } from 'node:http'
import type { Generator, PushLoad, Tally } from './load.ts'

/**
 * Number of different blobs, which are pushed in turn. A registry receives, checks and stores all bytes before it knows that it already
 * has the blob.
 */
const blobCount = 2

interface Blob {
  readonly bytes: Buffer
  readonly digest: string
}

function makeBlob(size: number): Blob {
  const bytes = randomBytes(size)
  return { bytes, digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}` }
}

/** Creates a generator with `connections` concurrent pushes. */
export function createPushGenerator(load: PushLoad): Generator {
  const agent = new Agent({ keepAlive: true, maxSockets: load.connections })
  const blobs = Array.from({ length: blobCount }, () => makeBlob(load.blobBytes))
  const origin = `http://127.0.0.1:${load.port}`
  const send = async (method: string, target: URL, body?: Buffer): Promise<IncomingMessage> => {
    const sent = request(target, { method, agent, headers: { ...load.headers, 'content-length': body?.length ?? 0 } })
    sent.end(body)
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    response.resume()
    await once(response, 'end')
    return response
  }
  const push = async ({ bytes, digest }: Blob, tally: Tally): Promise<void> => {
    const start = performance.now()
    const begun = await send('POST', new URL(`/v2/${load.repository}/blobs/uploads/`, origin))
    const place = new URL(begun.headers.location ?? '', origin)
    place.searchParams.set('digest', digest)
    const { statusCode } = begun.statusCode === 202 ? await send('PUT', place, bytes) : begun
    if (statusCode === 201) tally.answered('', performance.now() - start, bytes.length)
    else tally.failed(`a push was answered ${statusCode}`)
  }
  let pushed = 0
  return {
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      const lane = async (): Promise<void> => {
        while (performance.now() < deadline) {
          const blob = blobs[pushed++ % blobs.length]
          if (blob !== undefined) await push(blob, tally)
        }
      }
      await Promise.all(Array.from({ length: load.connections }, lane))
    },
    close: () => agent.destroy(),
  }
}
