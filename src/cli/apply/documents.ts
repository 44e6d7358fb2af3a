import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { errorMessage } from '../../base/error-text.ts'
import { isJson, type Json } from '../client/client-error.ts'
import { UsageError } from '../exit-codes.ts'

/** A document of the input. */
export interface InputDocument {
  /** File and number of the document, for messages. */
  readonly place: string
  readonly value: Json
}

/** The files to read. */
export interface DocumentSources {
  /** Files and folders; `-` is standard input. */
  readonly paths: readonly string[]
  /** True if folders within folders are read too. */
  readonly recursive: boolean
  readonly readStdin: () => Promise<string>
}

/** Extensions of the files that are read in folders. */
const extensions = /\.(?:ya?ml|json)$/

/** Reads all documents. Calls `refuse` for each one that has no fields or cannot be parsed. Rejects with UsageError for a path that cannot be read. */
export async function readDocuments({ paths, recursive, readStdin }: DocumentSources, refuse: (place: string, why: string) => void): Promise<InputDocument[]> {
  const documents: InputDocument[] = []
  for (const path of paths) {
    for (const file of path === '-' ? [path] : await filesIn(path, recursive)) {
      const text = file === '-' ? await readStdin() : await readable(file, () => readFile(file, 'utf8'))
      const name = file === '-' ? 'standard input' : file
      let number = 0
      for (const { value, fault } of await valuesIn(text)) {
        // A file may have empty documents, for example before the first separator.
        if (fault === undefined && (value === null || value === undefined)) continue
        number += 1
        const place = `${name}, document ${number}`
        if (fault !== undefined) refuse(place, fault)
        else addAll(documents, { place, value }, refuse)
      }
    }
  }
  return documents
}

/** Returns the path if it is a file, or the files of a folder in the order of their names. */
async function filesIn(path: string, recursive: boolean): Promise<readonly string[]> {
  const found = await readable(path, () => stat(path))
  if (!found.isDirectory()) return [path]
  const files = await filesBelow(path, recursive)
  if (files.length === 0) throw new UsageError(`${path} has no .yaml, .yml or .json files`)
  return files
}

/** Returns the files in a folder. Links to folders are not followed: they may lead back. */
async function filesBelow(folder: string, recursive: boolean): Promise<string[]> {
  const files: string[] = []
  const entries = await readable(folder, () => readdir(folder, { withFileTypes: true }))
  for (const entry of entries.toSorted((one, other) => (one.name < other.name ? -1 : 1))) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) files.push(...(recursive ? await filesBelow(path, true) : []))
    else if (extensions.test(entry.name) && !entry.name.startsWith('.') && (await readable(path, () => stat(path))).isFile()) files.push(path)
  }
  return files
}

async function readable<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    throw new UsageError(`${path} cannot be read (${code})`, { cause })
  }
}

/** Returns the values of all documents in a text, or what is wrong with each. YAML contains JSON. */
async function valuesIn(text: string): Promise<readonly { readonly value?: unknown; readonly fault?: string }[]> {
  const { parseAllDocuments } = await import('yaml')
  const parsed = parseAllDocuments(text)
  if (!Array.isArray(parsed)) return []
  return parsed.map((document) => {
    const [error] = document.errors
    // The first line names the position. The others show the text, which may be a secret.
    if (error !== undefined) return { fault: `not YAML: ${error.message.split('\n')[0] ?? ''}` }
    try {
      return { value: document.toJS() as unknown }
    } catch (cause) {
      return { fault: `not YAML: ${errorMessage(cause)}` }
    }
  })
}

/** Lists may be in lists to this depth. */
const maxDepth = 10

/** Adds a document. Lists are added item by item. */
function addAll(
  documents: InputDocument[],
  { place, value, depth = 0 }: { place: string; value: unknown; depth?: number },
  refuse: (place: string, why: string) => void,
): void {
  if (depth > maxDepth) {
    refuse(place, 'is in too many lists')
    return
  }
  const items = Array.isArray(value) ? value : isJson(value) && value['kind'] === 'List' ? value['items'] : undefined
  if (Array.isArray(items)) items.forEach((item, at) => addAll(documents, { place: `${place}, item ${at + 1}`, value: item, depth: depth + 1 }, refuse))
  else if (isJson(value)) documents.push({ place, value })
  else refuse(place, 'has no fields: write them as "kind: group"')
}
