import { isUid, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'

/** Returns the group with this uid, or this path of names such as `acme/security`. Throws an error for people if there is none. */
export function groupNamed(tables: RecordTables, text: string): Uid {
  if (isUid(text)) {
    if (tables.get('Group', text) === undefined) throw new Error(`there is no group ${text}`)
    return text
  }
  let found: string = rootParent
  for (const name of text.split('/')) {
    const group = tables.table('Group').child(found, name)
    if (group === undefined) throw new Error(`there is no group "${name}"${found === rootParent ? '' : ` in ${found}`}`)
    found = group.uid
  }
  return trustedUid(found)
}
