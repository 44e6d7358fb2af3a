import { Agent, request } from 'undici'
import type { Generator, PostLoad } from './load.ts'

/** Creates a generator that sends the same request repeatedly with undici, without other work. */
export function createPostGenerator({ url, ca, headers, body, connections }: PostLoad): Generator {
  const dispatcher = new Agent({ connect: { ca } })
  const bytes = Buffer.from(body)
  return {
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      const loop = async (): Promise<void> => {
        for (let start = performance.now(); start < deadline; start = performance.now()) {
          const response = await request(url, { dispatcher, method: 'POST', headers, body: bytes })
          await response.body.dump()
          if (response.statusCode === 200) tally.answered('', performance.now() - start, 0)
          else tally.failed(String(response.statusCode))
        }
      }
      await Promise.all(Array.from({ length: connections }, loop))
    },
    close: () => void dispatcher.destroy(),
  }
}
