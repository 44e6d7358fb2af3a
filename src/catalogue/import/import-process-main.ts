import { errorMessage } from '../../base/error-text.ts'
import type { WriteTarget } from '../files/catalogue-writer.ts'
import type { FromImportProcess, ToImportProcess } from './import-process.ts'
import { importInto, type ImportOptions, type OpenTarget } from './run-import.ts'

/** The number of refusals to report. All of them are counted. */
const reportedRefusals = 100

function say(message: FromImportProcess): void {
  process.send?.(message)
}

const alone = new AbortController()
let given: PromiseWithResolvers<Omit<WriteTarget, 'group'>> | undefined

/** Asks for the file of a kind. Documents are read one after the other, so one request waits at a time. */
const open: OpenTarget = (catalogue) => {
  given = Promise.withResolvers()
  say({ kind: 'open', catalogue })
  return given.promise
}

async function run(options: Omit<ImportOptions, 'onRefusal' | 'onProgress'>): Promise<void> {
  let refusals = 0
  const onRefusal: ImportOptions['onRefusal'] = (refusal) => {
    refusals += 1
    if (refusals <= reportedRefusals) say({ kind: 'refusal', refusal })
  }
  const onProgress: ImportOptions['onProgress'] = (progress) => say({ kind: 'progress', progress })
  try {
    say({ kind: 'done', counts: await importInto(open, { ...options, onRefusal, onProgress }, alone.signal) })
  } catch (error) {
    say({ kind: 'failed', error: errorMessage(error) })
  }
}

process.on('message', (message: ToImportProcess) => {
  if (message.kind === 'start') void run(message.options)
  else given?.resolve(message.target)
})
process.on('disconnect', () => alone.abort(new Error('the process that started the import is gone')))
