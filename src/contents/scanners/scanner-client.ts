import type { Digest } from '../../base/digest.ts'
import { parseBoundedJson } from '../../base/bounded-json.ts'
import { createSafeFetch, FetchError, type FetchRequest, type FetchResponse, type SafeFetch } from '../../auth/safe-fetch.ts'
import { reportLimits } from '../scanner-reports/report-list.ts'

/**
 * Why a request to a scanner failed:
 * - `unavailable`: it does not answer, or only with an error of a proxy.
 * - `busy`: it asks to wait. See `afterMs`.
 * - `unauthorized`: it refuses the credential. That says nothing about an image.
 * - `failed`: it failed for this image, or its answer cannot be used. It may succeed later.
 * - `rejected`: it did not accept the request for a scan. It had not seen the image yet, so the image is not the reason.
 * - `unsupported`: its metadata says that it does not scan such images.
 * - `lost`: it does not know the scan.
 * - `late`: it made no report in time. It may still work on it.
 */
export type ScannerFailure = 'unavailable' | 'busy' | 'unauthorized' | 'failed' | 'rejected' | 'unsupported' | 'lost' | 'late'

/** An error of a scanner. The message is for operators, and has nothing that the scanner wrote. */
export class ScannerError extends Error {
  override readonly name = 'ScannerError'
  readonly kind: ScannerFailure
  constructor(kind: ScannerFailure, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }

  /** The wait that the scanner asked for, in milliseconds. */
  get afterMs(): number | undefined {
    const { cause } = this
    return cause instanceof FetchError ? cause.retryAfterMs : cause instanceof ScannerError ? cause.afterMs : undefined
  }
}

/** Where a scanner is. Credential and CA are read for each request. */
export interface ScannerAddress {
  /** The base URL; paths begin with `/api/v1/`. */
  readonly url: string
  /** The headers that authorize requests. */
  readonly headers: () => Readonly<Record<string, string>>
  /** PEM certificates to trust; undefined for those of the system. */
  readonly ca: () => string | undefined
  /** The longest time of a request, in milliseconds. */
  readonly timeoutMs: number
}

/** What a scanner can do: the part that is used. */
export interface ScannerAbilities {
  /** The media types of manifests that it scans. */
  readonly consumes: ReadonlySet<string>
  /** The type of the reports: one of `reportTypes`, so that nothing that the scanner wrote gets into a header. */
  readonly reportType: string
  /** True if it has several kinds of reports, so that a request names the kind. */
  readonly isTyped: boolean
}

/** An image to scan, and how the scanner pulls it. */
export interface ScannedImage {
  readonly registryUrl: string
  readonly token: string
  readonly repository: string
  readonly digest: Digest
  readonly mediaType: string
}

/** The answer to a question for a report: the report, or the wait that the scanner asks for, in milliseconds. */
export type ReportAnswer = { readonly bytes: Uint8Array } | { readonly afterMs: number | undefined }

/** The types of reports that are read, best first. */
const reportTypes = [
  'application/vnd.security.vulnerability.report; version=1.1',
  'application/vnd.scanner.adapter.vuln.report.harbor+json; version=1.0',
] as const
/** The types of manifests of images. */
const imageTypes = ['application/vnd.oci.image.manifest.v1+json', 'application/vnd.docker.distribution.manifest.v2+json'] as const
/** Where the metadata says how the scanner signs in at the registry: `Basic` or `Bearer`. Many that take both do not set it. */
const authorizationProperty = 'harbor.scanner-adapter/registry-authorization-type'
/** The largest answer that is no report, in bytes. */
const maxAnswerBytes = 256 * 1024
const answerBounds = { maxDepth: 16, maxValues: 10_000, maxKeys: 10_000 }

type JsonRecord = Readonly<Record<string, unknown>>

function isRecord(value: unknown): value is JsonRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns a media type without blanks and in lower case, so that equal ones compare equal. */
function plainType(type: string): string {
  return type.replaceAll(/\s+/g, '').toLowerCase()
}

/** Returns the part of a media type before its parameters. */
export function baseType(type: string): string {
  return plainType(type).split(';', 1)[0] ?? ''
}

function textsIn(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []
}

function objectIn({ body }: FetchResponse, what: string): JsonRecord {
  if (body.length > maxAnswerBytes) throw new ScannerError('failed', `${what} of the scanner has more than ${maxAnswerBytes} bytes`)
  try {
    const value = parseBoundedJson(new TextDecoder('utf-8', { fatal: true }).decode(body), answerBounds)
    if (isRecord(value)) return value
  } catch {
    // Without the cause: its text has a part of the answer.
    throw new ScannerError('failed', `${what} of the scanner is no JSON, or has too many values`)
  }
  throw new ScannerError('failed', `${what} of the scanner is no JSON object`)
}

/** Returns the part of its answer that says how images are scanned. Throws ScannerError `unavailable`: a scanner that starts may answer so for a while. */
function abilitiesIn(metadata: JsonRecord): ScannerAbilities {
  const { properties } = metadata
  if (isRecord(properties) && properties[authorizationProperty] === 'Basic') {
    throw new ScannerError('unavailable', `the scanner takes no bearer token for the registry: its metadata has ${authorizationProperty}: Basic`)
  }
  const capabilities = (Array.isArray(metadata['capabilities']) ? metadata['capabilities'] : []).filter(isRecord)
  const isTyped = capabilities.some(({ type }) => type !== undefined)
  for (const reportType of reportTypes) {
    for (const capability of capabilities) {
      if (capability['type'] !== undefined && capability['type'] !== 'vulnerability') continue
      if (!textsIn(capability['produces_mime_types']).some((type) => plainType(type) === plainType(reportType))) continue
      const consumes = new Set(textsIn(capability['consumes_mime_types']).map(baseType))
      if (imageTypes.every((type) => !consumes.has(type))) throw new ScannerError('unavailable', 'the scanner names no type of images that it scans')
      return { consumes, reportType, isTyped }
    }
  }
  throw new ScannerError('unavailable', 'the scanner makes no reports of vulnerabilities in the form of Harbor, 1.0 or 1.1')
}

/** Returns the failure that a status or a broken connection means. */
function failureOf(error: FetchError): ScannerFailure {
  const { reason, status, retryAfterMs } = error
  if (reason === 'status') {
    if (status === 429 || (status === 503 && retryAfterMs !== undefined)) return 'busy'
    if (status === 401 || status === 403) return 'unauthorized'
    if (status === 502 || status === 503 || status === 504) return 'unavailable'
    return status === 404 ? 'lost' : 'failed'
  }
  return reason === 'too_large' || reason === 'redirect' || reason === 'timeout' ? 'failed' : 'unavailable'
}

/**
 * A client of the scanner API of Harbor, 1.x (https://github.com/goharbor/pluggable-scanner-spec). It follows no redirects, and every answer is limited in size
 * and time. All methods reject with ScannerError or the signal's reason.
 */
export class ScannerClient {
  readonly #address: ScannerAddress
  readonly #fetch: SafeFetch

  constructor(address: ScannerAddress) {
    this.#address = address
    this.#fetch = createSafeFetch({ timeoutMs: address.timeoutMs, maxBytes: reportLimits.documentBytes })
  }

  /** Resolves with what the scanner can do. */
  async abilities(signal: AbortSignal): Promise<ScannerAbilities> {
    return abilitiesIn(objectIn(await this.#send('metadata', {}, signal), 'the metadata'))
  }

  /** Asks for a scan. Resolves with its id. */
  async scan({ consumes, reportType, isTyped }: ScannerAbilities, target: ScannedImage, signal: AbortSignal): Promise<string> {
    const { registryUrl, token, repository, digest, mediaType } = target
    if (!consumes.has(baseType(mediaType))) throw new ScannerError('unsupported', `the scanner does not scan images of the type ${mediaType}`)
    const request = {
      registry: { url: registryUrl, authorization: `Bearer ${token}` },
      artifact: { repository, digest, mime_type: mediaType },
      ...(isTyped ? { enabled_capabilities: [{ type: 'vulnerability', produces_mime_types: [reportType] }] } : {}),
    }
    const headers = {
      'content-type': `application/vnd.scanner.adapter.scan.request+json; version=${isTyped ? '1.1' : '1.0'}`,
      accept: 'application/vnd.scanner.adapter.scan.response+json; version=1.0',
    }
    try {
      const { id } = objectIn(await this.#send('scan', { method: 'POST', headers, body: JSON.stringify(request) }, signal), 'the answer')
      if (typeof id === 'string' && /^[!-~]{1,256}$/.test(id) && !/^\.\.?$/.test(id)) return id
    } catch (error) {
      if (!(error instanceof ScannerError) || ['unavailable', 'busy', 'unauthorized'].includes(error.kind)) throw error
      throw new ScannerError('rejected', 'the scanner did not accept the request for a scan', error)
    }
    throw new ScannerError('rejected', 'the scanner named no id for the scan')
  }

  /** Asks for a report. */
  async report(id: string, reportType: string, signal: AbortSignal): Promise<ReportAnswer> {
    try {
      const { status, body, contentType, retryAfterMs } = await this.#send(`scan/${encodeURIComponent(id)}/report`, { headers: { accept: reportType } }, signal)
      if (status === 202) return { afterMs: retryAfterMs }
      if (baseType(contentType) !== baseType(reportType)) throw new ScannerError('failed', `the scanner answered with another type than ${reportType}`)
      return { bytes: body }
    } catch (error) {
      // The scan is not done yet. The answer may have an address, which is not used.
      if (error instanceof ScannerError && error.cause instanceof FetchError && error.cause.status === 302) return { afterMs: error.cause.retryAfterMs }
      throw error
    }
  }

  close(): Promise<void> {
    return this.#fetch.close()
  }

  async #send(path: string, request: Omit<FetchRequest, 'url'>, signal: AbortSignal): Promise<FetchResponse> {
    const { url, headers, ca } = this.#address
    const pem = ca()
    try {
      const whole = { ...request, url: `${url.replace(/\/+$/, '')}/api/v1/${path}`, headers: { ...request.headers, ...headers() }, allowPrivate: true }
      return await this.#fetch.send({ ...whole, ...(pem === undefined ? {} : { ca: pem }) }, signal)
    } catch (error) {
      if (!(error instanceof FetchError)) throw error
      const { reason, status } = error
      throw new ScannerError(
        failureOf(error),
        `the request for ${path.split('/', 1)[0] ?? ''} failed: ${reason === 'status' ? `status ${status ?? ''}` : reason}`,
        error,
      )
    }
  }
}
