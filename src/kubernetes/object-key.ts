import { objectKinds, type RecordKind } from './object-kinds.ts'
import type { KubeObject } from './kube-api.ts'

/** One object, as keys of the queue name it: `Group/<namespace>/<name>`. */
export interface ObjectKey {
  readonly kind: RecordKind
  readonly namespace: string
  readonly name: string
}

/** The text of a key. */
export function keyText({ kind, namespace, name }: ObjectKey): string {
  return `${kind}/${namespace}/${name}`
}

/** The key of an object. */
export function keyOfObject(kind: RecordKind, { metadata }: KubeObject): string {
  return keyText({ kind, namespace: metadata.namespace ?? '', name: metadata.name })
}

/** Reads what `keyText` wrote. Throws TypeError for anything else. */
export function parseKey(text: string): ObjectKey {
  const [kind = '', namespace, name] = text.split('/')
  if (!(kind in objectKinds) || namespace === undefined || name === undefined) throw new TypeError(`no key: ${text}`)
  // Looked up in the table right above.
  return { kind: kind as RecordKind, namespace, name }
}
