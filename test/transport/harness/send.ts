import { request } from 'node:http'

/** An HTTP answer. */
export interface Sent {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly text: string
}

/** A request to send; objects are sent as JSON, empty header values are omitted. */
export interface Sending {
  readonly verb: string
  readonly path: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>> | undefined
}

/** Sends a request with an unchanged path, including escapes and dot segments. */
export function sendTo(port: number, { verb, path, body, headers = {} }: Sending): Promise<Sent> {
  const text = body === undefined || typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body)
  const type: Record<string, string> = text === undefined ? {} : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) }
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: '127.0.0.1',
        port: port,
        method: verb,
        path,
        headers: Object.fromEntries(Object.entries({ ...type, ...headers }).filter(([, value]) => value !== '')),
      },
      (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text: Buffer.concat(chunks).toString() }))
      },
    )
    sent.on('error', reject)
    sent.end(text)
  })
}
