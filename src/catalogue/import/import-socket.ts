import { once } from 'node:events'
import { chmod, rm } from 'node:fs/promises'
import { createConnection, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { errorMessage, errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import type { CatalogueKind } from '../../cache/lists/catalogue-sources.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { Catalogues, LeftCatalogue, PublishedImport } from '../publish/catalogues.ts'
import { importInProcess } from './import-process.ts'
import { groupNamed } from './named-group.ts'
import type { ImportCounts, ImportOptions, RowCounts } from './run-import.ts'

/** An import as a command asks for it. Paths are absolute, and on the machine of the server. */
export interface ImportRequest {
  readonly paths: readonly string[]
  /** Uid or path of a group. */
  readonly group: string | undefined
  readonly ecosystem?: string | undefined
  readonly replace: boolean
  readonly dryRun: boolean
}

/** Receives what happens while an import runs. */
export type ImportWatcher = Pick<ImportOptions, 'onRefusal' | 'onProgress'>

type Refusal = Parameters<ImportOptions['onRefusal']>[0]
type Progress = Parameters<ImportOptions['onProgress']>[0]

/** What an import did, with the names of the new catalogues. */
export interface ImportSummary extends ImportCounts, Pick<PublishedImport, 'begun'> {
  readonly published: ReadonlyMap<CatalogueKind, { readonly manifest: string }>
}

/** One line of the answer, as JSON. The last one is `done` or `failed`. */
type AnswerLine =
  | { readonly refusal: Refusal }
  | { readonly progress: Progress }
  | {
      readonly done: Pick<ImportCounts, 'documents' | 'refused'> & {
        readonly rows: readonly (readonly [CatalogueKind, RowCounts])[]
        readonly begun: readonly (readonly [CatalogueKind, LeftCatalogue])[]
        readonly published: readonly (readonly [CatalogueKind, { readonly manifest: string }])[]
      }
    }
  | { readonly failed: string }

/** The longest request, in bytes. */
const maxRequestBytes = 1024 * 1024

/** Returns the path of the socket. */
function socketIn(dataDir: string): string {
  return join(dataDir, 'import.sock')
}

/** What imports of other processes need. */
export interface ImportSocketOptions {
  readonly dataDir: string
  readonly catalogues: Catalogues
  readonly tables: RecordTables
  readonly log: Log
}

async function readRequest(socket: Socket): Promise<ImportRequest> {
  let text = ''
  for await (const piece of socket.iterator({ destroyOnReturn: false })) {
    text += (piece as Buffer).toString() // a socket without encoding
    if (text.length > maxRequestBytes) throw new Error('the request is too long')
    if (text.endsWith('\n')) return JSON.parse(text) as ImportRequest // only the owner of the data folder can connect
  }
  throw new Error('the request ended early')
}

async function answer(socket: Socket, { catalogues, tables }: ImportSocketOptions): Promise<void> {
  const write = (line: AnswerLine): boolean => socket.write(`${JSON.stringify(line)}\n`)
  const stopping = new AbortController()
  socket.on('close', () => stopping.abort(new Error('the command is gone')))
  try {
    const { paths, group, ecosystem, replace, dryRun } = await readRequest(socket)
    const { documents, refused, rows, begun, published } = await catalogues.import(
      {
        paths,
        group: group === undefined ? undefined : groupNamed(tables, group),
        ecosystem,
        replace,
        dryRun,
        mayBegin: true,
        runner: importInProcess,
        onRefusal: (refusal) => write({ refusal }),
        onProgress: (progress) => write({ progress }),
      },
      stopping.signal,
    )
    write({ done: { documents, refused, rows: [...rows], begun: [...begun], published: [...published] } })
  } catch (error) {
    write({ failed: errorMessage(error) })
  }
  socket.end()
}

/**
 * Lets `taproot import` on this machine run imports while this process has the embedded store. Only the user who owns the data folder can connect. A failure is
 * logged. Resolves with a function that ends this.
 */
export async function serveImports(options: ImportSocketOptions): Promise<() => Promise<void>> {
  const { dataDir, log } = options
  const path = socketIn(dataDir)
  const imports = new Map<Socket, Promise<void>>()
  const server = createServer((socket) => {
    socket.on('error', (error) => log.debug('an import command is gone', { error: errorText(error) }))
    imports.set(
      socket,
      answer(socket, options).finally(() => imports.delete(socket)),
    )
  })
  // Later errors are of single connections, for example without free file descriptors.
  server.on('error', (error) => log.warn('an import command could not connect', { error: errorText(error) }))
  try {
    // This process has the store, so no other one listens here.
    await rm(path, { force: true })
    server.listen(path)
    await once(server, 'listening')
    await chmod(path, 0o600)
  } catch (error) {
    log.warn('"taproot import" works only while the server is stopped', { error: errorText(error) })
  }
  return async () => {
    if (server.listening) server.close()
    const running = [...imports.values()]
    for (const socket of imports.keys()) socket.destroy()
    await Promise.all(running)
  }
}

async function connect(dataDir: string): Promise<Socket | undefined> {
  const socket = createConnection(socketIn(dataDir))
  try {
    await once(socket, 'connect')
    return socket
  } catch {
    return undefined
  }
}

/** Asks the server that has the embedded store for an import. Resolves with undefined if no server runs. Rejects with its error, or the signal's reason. */
export async function importInServer(
  { dataDir, watcher, ...request }: ImportRequest & { readonly dataDir: string; readonly watcher: ImportWatcher },
  signal: AbortSignal,
): Promise<ImportSummary | undefined> {
  const socket = await connect(dataDir)
  if (socket === undefined) return undefined
  const stop = (): unknown => socket.destroy()
  signal.addEventListener('abort', stop, { once: true })
  socket.on('error', () => undefined)
  socket.write(`${JSON.stringify(request)}\n`)
  try {
    for await (const text of createInterface({ input: socket })) {
      const line = JSON.parse(text) as AnswerLine // only the server writes to this socket
      if ('refusal' in line) watcher.onRefusal(line.refusal)
      else if ('progress' in line) watcher.onProgress(line.progress)
      else if ('failed' in line) throw new Error(line.failed)
      else return { ...line.done, rows: new Map(line.done.rows), begun: new Map(line.done.begun), published: new Map(line.done.published) }
    }
    throw new Error('the server ended: nothing changed')
  } catch (error) {
    signal.throwIfAborted()
    throw error
  } finally {
    signal.removeEventListener('abort', stop)
    socket.destroy()
  }
}
