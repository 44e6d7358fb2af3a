import { readFileSync } from 'node:fs'
import { LineCounter, parseAllDocuments } from 'yaml'

type Values = Readonly<Record<string, unknown>>

/**
 * A mapping of a kubeconfig or of a credential. A field that is null is absent, and so is an empty text. Methods throw for a value of
 * another type. The errors name the field and never its value, which may be a secret.
 */
export class KubeFields {
  readonly #values: Values
  readonly #path: string

  /** `path` names the mapping in errors. Throws if `value` is neither a mapping nor null. */
  constructor(value: unknown, path: string) {
    if (Array.isArray(value) || (value !== null && typeof value !== 'object')) throw new Error(`${path} must be a mapping`)
    this.#values = { ...value }
    this.#path = path
  }

  /** Returns an error that names a field. */
  refusal(name: string, rule: string): Error {
    return new Error(`${this.#of(name)} ${rule}`)
  }

  /** Returns a value of any type. */
  value(name: string): unknown {
    return this.#values[name] ?? undefined
  }

  text(name: string): string | undefined {
    const value = this.value(name)
    if (value !== undefined && typeof value !== 'string') throw this.refusal(name, 'must be text: put it in quotes')
    return value === '' ? undefined : value
  }

  /** Returns false for an absent field. */
  flag(name: string): boolean {
    const value = this.value(name) ?? false
    if (typeof value !== 'boolean') throw this.refusal(name, 'must be true or false')
    return value
  }

  mapping(name: string): KubeFields | undefined {
    const value = this.value(name)
    return value === undefined ? undefined : new KubeFields(value, this.#of(name))
  }

  /** Returns the texts of a list; none for an absent field. */
  texts(name: string): string[] {
    return this.#list(name).map((value, index) => {
      if (typeof value !== 'string') throw this.refusal(`${name}[${index}]`, 'must be text: put it in quotes')
      return value
    })
  }

  /** Returns the mappings of a list; none for an absent field. */
  mappings(name: string): KubeFields[] {
    return this.#list(name).map((value, index) => new KubeFields(value, `${this.#of(name)}[${index}]`))
  }

  names(): string[] {
    return Object.keys(this.#values)
  }

  #list(name: string): unknown[] {
    const value = this.value(name) ?? []
    if (!Array.isArray(value)) throw this.refusal(name, 'must be a list')
    return value
  }

  #of(name: string): string {
    return this.#path.endsWith(':') ? `${this.#path} ${name}` : `${this.#path}.${name}`
  }
}

/** Reads the first document of a YAML file, as kubectl does. Throws if it cannot be read, or is not YAML; then the error has no text of the file. */
export function fieldsOfFile(file: string): KubeFields {
  const lineCounter = new LineCounter()
  const text = readFileSync(file, 'utf8')
  const documents = parseAllDocuments(text, { lineCounter, merge: true, prettyErrors: false, logLevel: 'silent' })
  const document = Array.isArray(documents) ? documents[0] : undefined
  const failure = document?.errors[0]
  if (failure !== undefined) {
    const { line, col } = lineCounter.linePos(failure.pos[0])
    throw new Error(`${file}, line ${line}, column ${col}: not valid YAML`)
  }
  return new KubeFields(valueOf(document, file) ?? null, `${file}:`)
}

/** Returns the value of a document. The parser refuses aliases that name no anchor, or too many values. */
function valueOf(document: { toJS(): unknown } | undefined, file: string): unknown {
  try {
    return document?.toJS()
  } catch {
    // The parser's error has the name of the alias, which may be a secret that begins with an asterisk.
    throw new Error(`${file}: it has an alias (*) that cannot be resolved`)
  }
}
