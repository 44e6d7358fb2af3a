import type { DescMessage } from '@bufbuild/protobuf'
import type { Answer } from './call.ts'
import type { JsonEncoder, JsonEncoders } from './json-encode.ts'

/** The JSON text of an answer, or its bytes in pieces. */
export type AnswerJson = (answer: Answer) => string | readonly Uint8Array[]

/** Encodes answers of one message type. What was encoded of a record before is taken as it is; a page is a join of such texts. */
export function createAnswerJson(desc: DescMessage, encoders: JsonEncoders): AnswerJson {
  const encode = encoders(desc)
  return (answer) => {
    const { message, shown, page } = answer
    if (shown !== undefined) return (shown.json ??= encode(shown.message))
    if (page?.field.message === undefined) return encode(message)
    return pageText(page, encode({ ...message, [page.field.localName]: [] }), encoders(page.field.message))
  }
}

function pageText({ field, items, joined }: NonNullable<Answer['page']>, frame: string, encodeItem: JsonEncoder): string | readonly Uint8Array[] {
  const opening = `${JSON.stringify(field.jsonName)}:[`
  // Nothing else looks like the field's key: within texts, quotes are escaped.
  const start = frame.indexOf(`${opening}]`) + opening.length
  if (joined !== undefined) return [Buffer.from(frame.slice(0, start)), ...joined, Buffer.from(frame.slice(start))]
  let text = frame.slice(0, start)
  let separator = ''
  for (const item of items) {
    text += separator + (item.json ??= encodeItem(item.message))
    separator = ','
  }
  return text + frame.slice(start)
}
