import { textOf, type Json } from './client-error.ts'
import { cellOf, columnsOf, type Column, alignedLine, columnWidths } from './columns.ts'
import type { ClientKind } from './kinds.ts'
import { jsonText, yamlText, type Output } from './output.ts'

/** The output formats of records. */
export const recordFormats = ['table', 'wide', 'json', 'yaml', 'name'] as const

/** An output format of records. */
export type RecordFormat = (typeof recordFormats)[number]

/** Where and in which format records are printed. */
export interface RecordPrinting {
  readonly output: Output
  readonly kind: Pick<ClientKind, 'kind'>
  readonly nowMs: number
}

/**
 * Prints records page by page as they arrive. `json` is one array, `yaml` one sequence, `name` one uid per line. The column widths of a
 * table come from the first page. Resolves with the number of records.
 */
export async function printRecords(pages: AsyncIterable<readonly Json[]>, format: RecordFormat, printing: RecordPrinting): Promise<number> {
  const form = formOf(format, printing)
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
  else await printing.output.write(await formOf(format, printing).page([record], true))
}

interface OutputForm {
  page(records: readonly Json[], first: boolean): string | Promise<string>
  end(count: number): string
}

function formOf(format: RecordFormat, printing: RecordPrinting): OutputForm {
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

function tableForm({ output, kind, nowMs }: RecordPrinting, isWide: boolean): OutputForm {
  const columns: readonly Column[] = columnsOf(kind.kind, isWide)
  let widths: readonly number[] = []
  return {
    page(records, first) {
      const rows = records.map((record) => columns.map((column) => cellOf(record, column, nowMs)))
      const heads = columns.map(({ head }) => head)
      if (first) widths = columnWidths([heads, ...rows])
      const body = rows.map((row) => `${alignedLine(row, widths)}\n`).join('')
      return first ? `${output.style('bold', alignedLine(heads, widths))}\n${body}` : body
    },
    end: () => '',
  }
}
