import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { errorMessage } from '../../base/error-text.ts'
import type { Environment } from '../../config/environment.ts'
import type { ClientContext } from '../client/client-command.ts'
import { ClientError, isJson, textOf, type Json } from '../client/client-error.ts'
import { yamlText } from '../client/output.ts'
import { UsageError } from '../exit-codes.ts'
import { findRecord } from '../get.ts'
import type { WritableKind } from './writable-kinds.ts'

/**
 * Opens the fields of a record in the person's editor, and sends those that were changed. An empty text changes nothing. If the change cannot be
 * saved, the file stays and a note names it. Rejects with UsageError or ClientError.
 */
export async function edit(
  { client, note, output }: ClientContext,
  { kind, update }: WritableKind,
  { record, env }: { readonly record: string; readonly env: Environment },
): Promise<void> {
  if (update === undefined) throw new UsageError(`the API cannot change ${kind.words}`)
  const found = await findRecord(client, kind, { record, filter: [] })
  const names = [...new Set(update.flags.map(({ path: [name = ''] }) => name))]
  const fields: Json = Object.fromEntries(names.flatMap((name) => (name in found ? [[name, found[name]]] : [])))
  const folder = await mkdtemp(join(tmpdir(), 'taproot-edit-'))
  const file = join(folder, 'record.yaml')
  const head = `# ${kind.kind} ${textOf(found['uid'])}\n# Other fields: ${names.filter((name) => !(name in fields)).join(', ') || 'none'}\n`
  await writeFile(file, `${head}${await yamlText(fields)}`, { mode: 0o600 })
  const shownText = await readFile(file, 'utf8')
  try {
    await runEditor(env, file)
    const after = await parse(await readFile(file, 'utf8'))
    const unknown = Object.keys(after ?? {}).filter((name) => !names.includes(name))
    if (unknown.length > 0) throw new ClientError(`${kind.words} have no field ${unknown.join(', ')} that can be changed`)
    const changed = after === undefined ? [] : names.filter((name) => !isDeepStrictEqual(after[name], fields[name]))
    if (after === undefined || changed.length === 0) {
      note('nothing was changed')
    } else {
      const body = Object.fromEntries(changed.map((name) => [name, after[name]]))
      const path = update.route.template.replace(/\{[^}]*\}/, textOf(found['uid']))
      await client.call({ method: 'PATCH', path, query: { updateMask: changed.join(',') }, body, ifMatch: textOf(found['etag']) })
      await output.write(`${kind.kind.toLowerCase()} ${record} changed: ${changed.join(', ')}\n`)
    }
  } catch (error) {
    if ((await readFile(file, 'utf8')) === shownText) await rm(folder, { recursive: true })
    else note(`Your text is in ${file}.`)
    throw error
  }
  await rm(folder, { recursive: true })
}

/** Returns the fields of the text; undefined if it has none, as of a person who gave up. */
async function parse(text: string): Promise<Json | undefined> {
  const { parse: parseYaml } = await import('yaml')
  try {
    const value: unknown = parseYaml(text) ?? undefined
    if (value === undefined || isJson(value)) return value
  } catch (cause) {
    throw new ClientError(`the text is not YAML: ${errorMessage(cause)}`, {}, cause)
  }
  throw new ClientError('the text has no fields: write them as "description: text"')
}

/** Runs the editor until it is closed. It may be a command with options, as in VISUAL="code --wait". */
async function runEditor(env: Environment, file: string): Promise<void> {
  const editor = [env['VISUAL'], env['EDITOR']].find((one) => one !== undefined && one !== '') ?? 'vi'
  const child = spawn('sh', ['-c', `${editor} "$1"`, 'sh', file], { stdio: 'inherit' })
  // Ctrl-C in the editor is for the editor.
  const ignore = (): void => undefined
  process.on('SIGINT', ignore).on('SIGQUIT', ignore)
  const [code] = (await once(child, 'exit').finally(() => process.off('SIGINT', ignore).off('SIGQUIT', ignore))) as [number | null] // a cast of the event's arguments
  if (code !== 0) throw new ClientError(`the editor ${editor} failed: nothing was changed`)
}
