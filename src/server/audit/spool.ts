import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import type { AuditEvent } from '../../base/audit-line.ts'
import type { Timers } from '../../base/timing.ts'
import { LineQueue } from './line-queue.ts'

/** Default size at which a segment is closed, in bytes. */
const defaultSegmentBytes = 1024 * 1024
/** Size of one read, in bytes: several times the length of the longest line. */
const readBytes = 256 * 1024
const segmentName = /^\d{16}\.jsonl$/
const cursorName = 'delivered.json'

/** A file of the spool. */
interface Segment {
  readonly name: string
  /** Number of flushed bytes. */
  bytes: number
  /** True while events may be appended. */
  isOpen: boolean
}

/** The segment that is being written. */
interface OpenSegment {
  readonly segment: Segment
  readonly file: FileHandle
}

/** An event in the spool. */
export interface SpooledEvent {
  readonly event: AuditEvent
  /** The event as JSON. */
  readonly text: string
}

/** The oldest events of a spool. */
export interface SpoolBatch {
  readonly events: readonly SpooledEvent[]
  /** Size on disk in bytes, including line ends. */
  readonly bytes: number
}

/** Settings of a spool. */
export interface SpoolOptions {
  readonly directory: string
  readonly maxBytes: number
  /** Size from which a segment is closed; 1 MiB by default. */
  readonly segmentBytes?: number
  /** Called after events were flushed. */
  readonly flushed: () => void
  /** Called with the error of a failed write, which is repeated. */
  readonly failed: (error: unknown) => void
  readonly timers: Timers
}

/**
 * A queue of events on disk, with a size limit. Events are flushed in batches, are returned in order, and survive a restart. Only one
 * caller at a time may use `batch` and `deliver`.
 *
 * Each start begins a new segment, so that nothing is appended to an incomplete line. A segment is removed when all its events are
 * delivered.
 */
export class Spool {
  readonly #options: SpoolOptions
  readonly #queue: LineQueue
  /** Segments, oldest first. */
  readonly #segments: Segment[]
  /** Number of delivered bytes of the oldest segment. */
  #delivered: number
  #storedBytes: number
  /** Number of the newest segment that ever existed. Numbers are never reused, because the cursor may still name an old one. */
  #newest: number
  /** The newest segment while events are appended to it. */
  #current: OpenSegment | undefined

  private constructor(options: SpoolOptions, found: { segments: Segment[]; delivered: number; newest: number }) {
    this.#options = options
    this.#segments = found.segments
    this.#delivered = found.delivered
    this.#newest = found.newest
    this.#storedBytes = found.segments.reduce((sum, { bytes }) => sum + bytes, 0) - found.delivered
    this.#queue = new LineQueue({ store: (bytes) => this.#store(bytes), failed: options.failed, timers: options.timers })
  }

  /** Opens a spool, with the events of earlier processes. Rejects if the folder cannot be used. */
  static async open(options: SpoolOptions): Promise<Spool> {
    const { directory } = options
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const names = (await readdir(directory)).filter((name) => segmentName.test(name)).toSorted()
    const segments: Segment[] = []
    for (const name of names) segments.push({ name, bytes: (await stat(join(directory, name))).size, isOpen: false })
    const [first] = segments
    const cursor = await readCursor(directory)
    const delivered = first === undefined || first.name !== cursor.segment ? 0 : Math.min(cursor.bytes, first.bytes)
    const newest = Math.max(0, ...[cursor.segment, ...names].map((name) => Number.parseInt(name, 10) || 0))
    return new Spool(options, { segments, delivered, newest })
  }

  /** Size of the events that are not delivered, in bytes. */
  get bytes(): number {
    return this.#storedBytes + this.#queue.bytes
  }

  /** Queues an event as JSON. Returns false if the spool is full. */
  append(text: string): boolean {
    return this.bytes + text.length < this.#options.maxBytes && this.#queue.append(text)
  }

  /** Returns the oldest flushed events, at most `limit` of them. */
  async batch(limit: number): Promise<SpoolBatch> {
    for (;;) {
      const head = await this.#head()
      if (head === undefined) return { events: [], bytes: 0 }
      const found = parseLines(await this.#read(head, readBytes), limit)
      if (found.events.length > 0) return found
      // Skips lines that are incomplete or damaged.
      await this.deliver(found)
    }
  }

  /** Returns the flushed lines of the oldest segment, as they are on disk; empty if nothing waits. The last one may be cut off. */
  async chunk(): Promise<Buffer> {
    const head = await this.#head()
    return head === undefined ? Buffer.alloc(0) : this.#read(head, head.bytes)
  }

  /** Removes the events of a batch, which must be the oldest ones. */
  async deliver({ bytes }: Pick<SpoolBatch, 'bytes'>): Promise<void> {
    this.#delivered += bytes
    this.#storedBytes -= bytes
    const path = join(this.#options.directory, cursorName)
    await writeFile(`${path}.new`, JSON.stringify({ segment: this.#segments[0]?.name, bytes: this.#delivered }), { mode: 0o600 })
    await rename(`${path}.new`, path)
  }

  /** Flushes the queued events. Resolves with the number of events that could not be flushed. */
  async close(): Promise<number> {
    const lost = await this.#queue.close()
    await this.#endSegment()
    return lost
  }

  /** Returns the oldest segment that has flushed lines to deliver. Removes those that were delivered. */
  async #head(): Promise<Segment | undefined> {
    for (;;) {
      const [head] = this.#segments
      if (head === undefined || this.#delivered < head.bytes) return head
      if (head.isOpen) return undefined
      this.#segments.shift()
      this.#delivered = 0
      await rm(join(this.#options.directory, head.name), { force: true })
    }
  }

  /** Returns bytes of the oldest segment. If the file lacks some, because it was cut or removed from outside, they are given up. */
  async #read(segment: Segment, maxBytes: number): Promise<Buffer> {
    const size = Math.min(maxBytes, segment.bytes - this.#delivered)
    const found = await readPart(join(this.#options.directory, segment.name), { from: this.#delivered, size })
    if (found.length < size) await this.#giveUp(segment, found.length)
    return found
  }

  /** Forgets what the file of a segment lacks: all after the first `found` bytes that are not delivered. */
  async #giveUp(segment: Segment, found: number): Promise<void> {
    // Later events go into another file.
    if (segment.isOpen) await this.#endSegment()
    const lost = segment.bytes - this.#delivered - found
    segment.bytes -= lost
    this.#storedBytes -= lost
    this.#options.failed(new Error(`${lost} bytes of events are lost: ${segment.name} was cut or removed`))
  }

  async #store(bytes: Buffer): Promise<void> {
    const { segment, file } = (this.#current ??= await this.#beginSegment())
    try {
      await file.appendFile(bytes)
      await file.datasync()
    } catch (error) {
      // The batch may be written in part. So the whole batch is written to another segment.
      await this.#endSegment().catch(() => undefined)
      throw error
    }
    segment.bytes += bytes.length
    this.#storedBytes += bytes.length
    if (segment.bytes >= (this.#options.segmentBytes ?? defaultSegmentBytes)) await this.#endSegment()
    this.#options.flushed()
  }

  async #beginSegment(): Promise<OpenSegment> {
    const { directory } = this.#options
    this.#newest += 1
    const segment: Segment = { name: `${String(this.#newest).padStart(16, '0')}.jsonl`, bytes: 0, isOpen: true }
    const file = await open(join(directory, segment.name), 'ax', 0o600)
    try {
      const folder = await open(directory)
      await folder.sync().finally(() => folder.close())
    } catch (error) {
      await file.close()
      throw error
    }
    this.#segments.push(segment)
    return { segment, file }
  }

  async #endSegment(): Promise<void> {
    const current = this.#current
    this.#current = undefined
    if (current === undefined) return
    await current.file.close().finally(() => (current.segment.isOpen = false))
  }
}

/** Reads a part of a file; less if the file ends earlier or does not exist. */
async function readPart(path: string, { from, size }: { readonly from: number; readonly size: number }): Promise<Buffer> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (file === undefined) return Buffer.alloc(0)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size), 0, size, from)
    return buffer.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}

/**
 * Returns the oldest segment and the number of its delivered bytes, as last stored. If the file is lost or damaged, events are delivered
 * twice.
 */
async function readCursor(directory: string): Promise<{ readonly segment: string; readonly bytes: number }> {
  try {
    const { segment, bytes } = JSON.parse(await readFile(join(directory, cursorName), 'utf8')) as Readonly<Record<string, unknown>> // a cast: the content is not known yet
    if (typeof segment === 'string' && typeof bytes === 'number') return { segment, bytes }
  } catch {
    // A damaged file is treated like a missing one.
  }
  return { segment: '', bytes: 0 }
}

/**
 * Parses complete lines, at most `limit`. `bytes` includes lines that cannot be parsed. If there is no line end, it is the length of the
 * whole input.
 */
function parseLines(bytes: Buffer, limit: number): SpoolBatch {
  const events: SpooledEvent[] = []
  let at = 0
  while (events.length < limit) {
    const end = bytes.indexOf(10, at)
    if (end < 0) break
    const text = bytes.toString('utf8', at, end)
    at = end + 1
    const event = parseEvent(text)
    if (event !== undefined) events.push({ event, text })
  }
  return { events, bytes: at === 0 ? bytes.length : at }
}

function parseEvent(text: string): AuditEvent | undefined {
  try {
    const parsed: unknown = JSON.parse(text)
    return typeof parsed === 'object' && parsed !== null && 'time' in parsed ? (parsed as AuditEvent) : undefined // a cast: this program wrote the event
  } catch {
    return undefined
  }
}
