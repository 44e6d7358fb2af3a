import { Option } from 'commander'
import type { Clock } from '../../base/runtime.ts'
import { textOf, type Json } from './client-error.ts'
import { cellOf, columnsOf, type Column, alignedLine, columnWidths } from './columns.ts'
import type { ClientKind } from './kinds.ts'
import type { JsonPathTemplate } from './json-path.ts'
import { UsageError } from '../exit-codes.ts'
import { jsonLine, jsonText, yamlText, type Output } from './output.ts'

/** The output formats of records, without templates. */
export const recordFormats = ['table', 'wide', 'json', 'yaml', 'name'] as const

/** How a format with a template starts. */
const jsonPathStart = 'jsonpath='

/** An output format of records. `jsonpath=` is followed by a template, such as `{.name}`. */
export type RecordFormat = (typeof recordFormats)[number] | `${typeof jsonPathStart}${string}`

/** Creates the option for the output format: one of `formats`, or a template. The template is checked before the command runs. */
export function formatOption(description: string, formats: readonly RecordFormat[]): Option {
  const option = new Option('-o, --output <format>', description).choices([...formats, jsonPathStart])
  const { parseArg } = option
  // As for kubectl, "-o=json" is the same as "-o json".
  return option.argParser((text: string, previous: unknown) => {
    const format = text.replace(/^=/, '')
    return isTemplate(format) ? format : parseArg?.(format, previous)
  })
}

/** True for a format with a template. */
function isTemplate(format: string): format is `${typeof jsonPathStart}${string}` {
  return format.startsWith(jsonPathStart)
}

/** Rejects with UsageError if a format has a template that is invalid. Other values of options are ignored. */
export async function assertFormat(format: unknown): Promise<void> {
  if (typeof format === 'string' && isTemplate(format)) await templateOf(format)
}

/** Compiles the template of a format. */
async function templateOf(format: string): Promise<JsonPathTemplate> {
  // Loaded when needed: few commands have a template.
  const { compileJsonPath } = await import('./json-path.ts')
  return compileJsonPath(format.slice(jsonPathStart.length))
}

/** Where and in which format records are printed. */
export interface RecordPrinting {
  readonly output: Output
  readonly kind: Pick<ClientKind, 'kind'>
  readonly nowMs: number
}

/**
 * Prints records page by page as they arrive. `json` is one array, `yaml` one sequence, `name` one uid per line. The column widths of a
 * table come from the first page. A template is filled in when all pages are there. Resolves with the number of records.
 */
export async function printRecords(pages: AsyncIterable<readonly Json[]>, format: RecordFormat, printing: RecordPrinting): Promise<number> {
  const form = await formOf(format, printing)
  let count = 0
  for await (const page of pages) {
    if (page.length === 0) continue
    await printing.output.write(await form.page(page, count === 0))
    count += page.length
  }
  const end = form.end(count)
  if (end !== '') await printing.output.write(end)
  return count
}

/** Prints one record. `json` and `yaml` print only the record, not an array. */
export async function printRecord(record: Json, format: RecordFormat, printing: RecordPrinting): Promise<void> {
  if (format === 'json') await printing.output.write(`${jsonText(record)}\n`)
  else if (format === 'yaml') await printing.output.write(await yamlText(record))
  else if (isTemplate(format)) await printing.output.write((await templateOf(format)).ofRecord(record))
  else await printing.output.write(await (await formOf(format, printing)).page([record], true))
}

/** A change of a record, in the terms of Kubernetes. `object` is the record as it is, or as it was last. */
export interface WatchedChange {
  readonly change: 'ADDED' | 'MODIFIED' | 'DELETED'
  readonly object: Json
}

/** Where changes are printed, and the clock for ages. */
interface ChangePrinting extends Pick<RecordPrinting, 'output' | 'kind'> {
  readonly clock: Clock
}

/** Returns what prints changes as they come: rows with the change first, one line of JSON or one document of YAML each. Throws UsageError for other formats. */
export function createChangePrinter(format: RecordFormat, { clock, output, kind }: ChangePrinting): (changes: readonly WatchedChange[]) => Promise<void> {
  if (format === 'json') return async (changes) => await output.write(changes.map((one) => `${jsonLine(watchEvent(one))}\n`).join(''))
  if (format === 'yaml')
    return async (changes) => {
      for (const one of changes) await output.write(`---\n${await yamlText(watchEvent(one))}`)
    }
  if (format !== 'table' && format !== 'wide') throw new UsageError('--watch prints table, wide, json or yaml')
  const printing = { output, kind, nowMs: 0 }
  const form = tableForm(printing, format === 'wide', [changeColumn])
  let isFirst = true
  return async (changes) => {
    if (changes.length === 0) return
    printing.nowMs = clock.now()
    await output.write(
      await form.page(
        changes.map(({ change, object }) => ({ ...object, [changeMember]: change.padEnd(longestChange) })),
        isFirst,
      ),
    )
    isFirst = false
  }
}

/** Returns a change in the form of a watch event of Kubernetes. */
function watchEvent({ change: type, object }: WatchedChange): Json {
  return { type, object }
}

/** The member of a row with the type of the change. No record has a member of this name. */
const changeMember = '@change'
/** Length of the longest type of a change: the first page may have shorter ones only. */
const longestChange = 8
const changeColumn: Column = { head: 'EVENT', at: [changeMember], form: 'text' }

interface OutputForm {
  page(records: readonly Json[], first: boolean): string | Promise<string>
  end(count: number): string
}

async function formOf(format: RecordFormat, printing: RecordPrinting): Promise<OutputForm> {
  if (isTemplate(format)) return templateForm(await templateOf(format))
  return {
    table: () => tableForm(printing, false),
    wide: () => tableForm(printing, true),
    json: () => jsonForm,
    yaml: () => yamlForm,
    name: () => nameForm,
  }[format]()
}

const jsonForm: OutputForm = {
  page: (records, first) => records.map((record, at) => `${first && at === 0 ? '[\n' : ',\n'}${jsonText(record).replaceAll(/^/gm, '  ')}`).join(''),
  end: (count) => (count === 0 ? '[]\n' : '\n]\n'),
}

const yamlForm: OutputForm = {
  page: (records) => yamlText(records),
  end: (count) => (count === 0 ? '[]\n' : ''),
}

const nameForm: OutputForm = {
  page: (records) =>
    records.map((record) => `${['uid', 'id', 'docId', 'eventId'].map((member) => textOf(record[member])).find((text) => text !== '') ?? ''}\n`).join(''),
  end: () => '',
}

function templateForm(template: JsonPathTemplate): OutputForm {
  const all: Json[] = []
  return {
    page(records) {
      all.push(...records)
      return ''
    },
    end: () => template.ofList(all),
  }
}

function tableForm(printing: RecordPrinting, isWide: boolean, first: readonly Column[] = []): OutputForm {
  const columns: readonly Column[] = [...first, ...columnsOf(printing.kind.kind, isWide)]
  let widths: readonly number[] = []
  return {
    page(records, first) {
      const rows = records.map((record) => columns.map((column) => cellOf(record, column, printing.nowMs)))
      const heads = columns.map(({ head }) => head)
      if (first) widths = columnWidths([heads, ...rows])
      const body = rows.map((row) => `${alignedLine(row, widths)}\n`).join('')
      return first ? `${printing.output.style('bold', alignedLine(heads, widths))}\n${body}` : body
    },
    end: () => '',
  }
}
