import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setPriority } from 'node:os'
import { errorText } from '../../base/error-text.ts'
import type { CatalogueKind } from '../../cache/lists/catalogue-sources.ts'
import type { WriteTarget } from '../files/catalogue-writer.ts'
import type { ImportCounts, ImportOptions, ImportRefusal, ImportRunner, OpenTarget } from './run-import.ts'

/** Messages to the process. */
export type ToImportProcess =
  | { readonly kind: 'start'; readonly options: Omit<ImportOptions, 'onRefusal' | 'onProgress'> }
  | { readonly kind: 'target'; readonly target: Omit<WriteTarget, 'group'> }

/** Messages from the process. */
export type FromImportProcess =
  | { readonly kind: 'open'; readonly catalogue: CatalogueKind }
  | { readonly kind: 'refusal'; readonly refusal: ImportRefusal }
  | { readonly kind: 'progress'; readonly progress: { readonly documents: number; readonly bytes: number } }
  | { readonly kind: 'done'; readonly counts: ImportCounts }
  | { readonly kind: 'failed'; readonly error: string }

/** The memory that JavaScript may use in the process, in MiB. */
const heapMegabytes = 512
/** The size of half the memory for new objects, in MiB. The default of 16 makes nothing faster here. */
const halfSpaceMegabytes = 4
/** The process gives way to all others. */
const lowPriority = 10

function start(): ChildProcess {
  // No variable reaches the process: it reads what strangers wrote.
  const child = fork(new URL('import-process-main.ts', import.meta.url), [], {
    env: {},
    execArgv: ['--disable-warning=ExperimentalWarning', `--max-old-space-size=${heapMegabytes}`, `--max-semi-space-size=${halfSpaceMegabytes}`],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  })
  if (child.pid !== undefined) setPriority(child.pid, lowPriority)
  return child
}

/** Answers the messages of the process until it is done. */
function conversation(child: ChildProcess, open: OpenTarget, { onRefusal, onProgress, ...options }: ImportOptions): Promise<ImportCounts> {
  const { promise, resolve, reject } = Promise.withResolvers<ImportCounts>()
  const tell = (message: ToImportProcess): void => void child.send(message, (error) => (error === null ? undefined : reject(error)))
  child.on('error', reject)
  child.on('exit', (code, signal) =>
    reject(new Error(`the import process ended with ${signal ?? `code ${String(code)}`}, perhaps because its memory was full`)),
  )
  child.on('message', (message: FromImportProcess) => {
    if (message.kind === 'done') resolve(message.counts)
    else if (message.kind === 'failed') reject(new Error(message.error))
    else if (message.kind === 'refusal') onRefusal(message.refusal)
    else if (message.kind === 'progress') onProgress(message.progress)
    else open(message.catalogue).then((target) => tell({ kind: 'target', target }), reject)
  })
  tell({ kind: 'start', options })
  return promise
}

/**
 * Imports like `importInto`, in a process of its own with little memory and a low priority: a hostile source hurts nothing else. It reports the first
 * refusals only. Rejects also if the process ends.
 */
export const importInProcess: ImportRunner = async (open, options, signal) => {
  signal.throwIfAborted()
  const child = start()
  const kill = (): boolean => child.kill('SIGKILL')
  signal.addEventListener('abort', kill, { once: true })
  const exited = once(child, 'exit').catch(() => undefined)
  try {
    return await conversation(child, open, options)
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof Error ? error : new Error(errorText(error))
  } finally {
    signal.removeEventListener('abort', kill)
    kill()
    await exited
  }
}
