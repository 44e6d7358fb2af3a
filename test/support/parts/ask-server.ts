import { once } from 'node:events'
import { request } from 'node:http'
import { request as requestTls } from 'node:https'

const timeoutMs = 2000

/** The answer of a test server to a GET; undefined if the server does not answer yet. Certificates are not checked. */
export async function askServer(url: string, headers: Readonly<Record<string, string>> = {}): Promise<{ status: number; body: string } | undefined> {
  const options = { headers, timeout: timeoutMs }
  const sent = url.startsWith('https:') ? requestTls(url, { ...options, rejectUnauthorized: false }) : request(url, options)
  sent.on('timeout', () => sent.destroy())
  sent.end()
  try {
    const [response] = await once(sent, 'response')
    let body = ''
    for await (const chunk of response) body += String(chunk)
    return { status: Number(response.statusCode), body }
  } catch {
    // Nothing listens yet, or it ended while it answered.
    return undefined
  }
}

/** True once a server of the test answers a GET with 200. */
export async function isServing(url: string, headers: Readonly<Record<string, string>> = {}): Promise<boolean> {
  return (await askServer(url, headers))?.status === 200
}
