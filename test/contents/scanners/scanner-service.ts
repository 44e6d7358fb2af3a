import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Digest } from '../../../src/base/digest.ts'
import { closeNow, listenOnLoopback } from '../../support/parts/loopback.ts'

export const reportType = 'application/vnd.security.vulnerability.report; version=1.1'
const scanResponseType = 'application/vnd.scanner.adapter.scan.response+json; version=1.0'

/** The request for a scan. */
export interface ScanRequest {
  readonly registry: { readonly url: string; readonly authorization: string }
  readonly artifact: { readonly repository: string; readonly digest: Digest; readonly mime_type: string }
  readonly enabled_capabilities?: readonly object[]
}

/** What a service answers to a question for a report: by default its report, after one wait. */
export type AnswerReport = (scan: ScanRequest, response: ServerResponse, asked: number) => void

/** A report of the form of Harbor. */
export function reportOf(digest: string, ids: readonly string[] = ['CVE-2026-0001']): Buffer {
  return Buffer.from(
    JSON.stringify({
      generated_at: '2026-11-01T10:00:00Z',
      artifact: { digest, repository: 'any' },
      scanner: { name: 'Stand-in', vendor: 'Tests', version: '1.0' },
      severity: 'High',
      vulnerabilities: ids.map((id) => ({ id, package: 'openssl', version: '3.3.1', fix_version: '3.3.2', severity: 'High' })),
    }),
  )
}

/** Answers with a report. */
export function sendReport(response: ServerResponse, bytes: Buffer, type = reportType): void {
  response.writeHead(200, { 'content-type': type }).end(bytes)
}

/** Answers that the scan goes on, as harbor-scanner-trivy does. */
export function sendWait(response: ServerResponse, location = '/api/v1/elsewhere'): void {
  response.writeHead(302, { location, 'refresh-after': '0' }).end()
}

export const usualAnswer: AnswerReport = (scan, response, asked) => (asked === 1 ? sendWait(response) : sendReport(response, reportOf(scan.artifact.digest)))

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer) // no encoding is set
  return Buffer.concat(chunks).toString()
}

/** A scanner with the scanner API of Harbor. */
export class ScannerService {
  /** The requests for scans, in their order. */
  readonly scans: ScanRequest[] = []
  /** The paths of all requests besides those of the API. */
  readonly strayPaths: string[] = []
  /** The credentials of all requests. */
  readonly credentials = new Set<string | undefined>()
  /** Its description of itself. */
  metadata: unknown = {
    scanner: { name: 'Stand-in', vendor: 'Tests', version: '1.0' },
    capabilities: [
      {
        type: 'sbom',
        consumes_mime_types: ['application/vnd.oci.image.manifest.v1+json'],
        produces_mime_types: ['application/vnd.security.sbom.report+json; version=1.0'],
      },
      { type: 'vulnerability', consumes_mime_types: ['application/vnd.oci.image.manifest.v1+json'], produces_mime_types: [reportType] },
    ],
  }
  /** Called with each request before its answer. */
  onScan: (scan: ScanRequest) => Promise<void> = () => Promise.resolve()
  answer: AnswerReport = usualAnswer
  readonly #scans = new Map<string, { readonly request: ScanRequest; asked: number }>()
  #server = createServer((request, response) => void this.#handle(request, response))
  #port = 0

  async start(): Promise<void> {
    this.#port = await listenOnLoopback(this.#server)
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  /** Forgets all scans, as after a restart. */
  forget(): void {
    this.#scans.clear()
  }

  /** Stops to answer. */
  async down(): Promise<void> {
    await closeNow(this.#server)
  }

  /** Answers again, at the same port. */
  async up(): Promise<void> {
    this.#server = createServer((request, response) => void this.#handle(request, response))
    const listening = Promise.withResolvers<void>()
    this.#server.listen(this.#port, '127.0.0.1', listening.resolve)
    await listening.promise
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '', method = '' } = request
    this.credentials.add(request.headers.authorization)
    const id = /^\/api\/v1\/scan\/([^/]+)\/report$/.exec(url)?.[1]
    if (url === '/api/v1/metadata') {
      response.writeHead(200, { 'content-type': 'application/vnd.scanner.adapter.metadata+json; version=1.1' }).end(JSON.stringify(this.metadata))
    } else if (method === 'POST' && url === '/api/v1/scan') {
      const scan = JSON.parse(await bodyOf(request)) as ScanRequest // the server's own form
      this.scans.push(scan)
      await this.onScan(scan)
      const made = randomUUID()
      this.#scans.set(made, { request: scan, asked: 0 })
      response.writeHead(202, { 'content-type': scanResponseType }).end(JSON.stringify({ id: made }))
    } else if (id === undefined) {
      this.strayPaths.push(url)
      response.writeHead(404).end()
    } else {
      const scan = this.#scans.get(id)
      if (scan === undefined || request.headers.accept !== reportType) response.writeHead(404).end()
      else this.answer(scan.request, response, (scan.asked += 1))
    }
  }
}
