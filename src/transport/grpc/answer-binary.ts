import { toBinary, type DescMessage } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import type { Answer } from '../call.ts'

/** The protobuf bytes of an answer of type `desc`. What was encoded of a record before is taken as it is; a page is a join of such bytes. */
export function answerBinary(desc: DescMessage, answer: Answer): Buffer {
  const { message, shown, page } = answer
  if (shown !== undefined) return bufferOf((shown.binary ??= toBinary(desc, shown.message)))
  if (page?.field.message === undefined) return bufferOf(toBinary(desc, message))
  const item = page.field.message
  const writer = new BinaryWriter()
  for (const piece of page.joined ?? []) writer.raw(piece)
  for (const one of page.items) writer.tag(page.field.number, WireType.LengthDelimited).bytes((one.binary ??= toBinary(item, one.message)))
  // The order of fields has no meaning.
  writer.raw(toBinary(desc, { ...message, [page.field.localName]: [] }))
  return bufferOf(writer.finish())
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
