import { checkedName, listAt, membersOf, nameAt, namesAt, optionalNameAt, RefusedDocument, type Members } from '../members.ts'
import { productOf, type Product } from './products.ts'
import { maxStatements } from './statements.ts'

/** How deep branches and relationships go. */
const maxDepth = 100
/** How many products all lists of a document name together: a few groups can make any number. */
const maxReferences = 2_000_000

/** What a product id stands for. Both are the same unless it is a part of another product. */
interface ProductPair {
  readonly artifact: Product
  readonly component: Product
}

/** What the branches above a product say of it. */
type BranchFacts = Readonly<Record<'name' | 'version' | 'architecture', string>>

/** The categories of branches that say something of a product. */
const branchFacts: ReadonlyMap<unknown, keyof BranchFacts> = new Map([
  ['product_name', 'name'],
  ['product_version', 'version'],
  ['architecture', 'architecture'],
])

/** A branch to read, with the facts of those above it. */
interface BranchToRead {
  readonly item: unknown
  readonly facts: BranchFacts
  readonly depth: number
}

/** The products that a CSAF document speaks of. */
export class CsafProducts {
  readonly #products = new Map<string, Product>()
  readonly #relationships = new Map<string, { readonly part: string; readonly whole: string }>()
  readonly #groups = new Map<string, readonly string[]>()
  #references = 0

  /** Reads a `product_tree`. Throws RefusedDocument. */
  constructor(tree: Members) {
    const noFacts = { name: '', version: '', architecture: '' }
    for (const item of productsIn(tree, 'full_product_names')) this.#add(item, noFacts)
    this.#readBranches(productsIn(tree, 'branches').map((item) => ({ item, facts: noFacts, depth: 1 })))
    for (const item of productsIn(tree, 'relationships')) this.#relate(membersOf(item, 'product_tree.relationships'))
    for (const item of productsIn(tree, 'product_groups')) {
      const group = membersOf(item, 'product_tree.product_groups')
      this.#groups.set(nameAt(group, 'group_id', 'product_tree.product_groups.group_id'), this.#idsAt(group, 'product_ids', 'product_tree.product_groups'))
    }
  }

  /** Returns the ids of products that `product_ids` and `group_ids` name. Throws RefusedDocument. */
  idsOf(members: Members, where: string): readonly string[] {
    const groups = namesAt(members, 'group_ids', `${where}.group_ids`).map((id) => {
      const group = this.#groups.get(id)
      if (group === undefined) throw new RefusedDocument(`${where} names a product group that product_tree does not have`)
      this.#refer(group.length)
      return group
    })
    return [...this.#idsAt(members, 'product_ids', where), ...groups.flat()]
  }

  /** Returns the ids of products in a list. Throws RefusedDocument. */
  idsIn(members: Members, key: string, where: string): readonly string[] {
    return this.#idsAt(members, key, where)
  }

  /** Returns the product with an id, and what it is a part of. Throws RefusedDocument. */
  pairOf(id: string): ProductPair {
    return { artifact: this.#follow(id, 'whole'), component: this.#follow(id, 'part') }
  }

  #follow(id: string, side: 'part' | 'whole'): Product {
    let at = id
    for (let depth = 0; depth < maxDepth; depth++) {
      const product = this.#products.get(at)
      if (product !== undefined) return product
      const relationship = this.#relationships.get(at)
      if (relationship === undefined) throw new RefusedDocument(`the product ${id} is not in product_tree`)
      at = relationship[side]
    }
    throw new RefusedDocument(`product_tree.relationships of ${id} go in circles, or are deeper than ${maxDepth}`)
  }

  #idsAt(members: Members, key: string, where: string): readonly string[] {
    const items = listAt(members, key, { where: `${where}.${key}`, max: maxStatements })
    this.#refer(items.length)
    return items.map((item) => {
      if (typeof item !== 'string') throw new RefusedDocument(`${where}.${key} has an item that is no text`)
      return checkedName(item, `${where}.${key}`)
    })
  }

  #refer(number: number): void {
    this.#references += number
    if (this.#references > maxReferences) throw new RefusedDocument(`the document names products more than ${maxReferences} times`)
  }

  #readBranches(toRead: BranchToRead[]): void {
    for (let next = toRead.pop(); next !== undefined; next = toRead.pop()) {
      const { item, facts, depth } = next
      if (depth > maxDepth) throw new RefusedDocument(`product_tree.branches are deeper than ${maxDepth}`)
      const branch = membersOf(item, 'product_tree.branches')
      const fact = branchFacts.get(branch['category'])
      const own = fact === undefined ? facts : { ...facts, [fact]: optionalNameAt(branch, 'name', 'product_tree.branches.name') }
      if (branch['product'] !== undefined) this.#add(branch['product'], own)
      for (const inner of productsIn(branch, 'branches')) toRead.push({ item: inner, facts: own, depth: depth + 1 })
    }
  }

  #add(item: unknown, facts: BranchFacts): void {
    const product = membersOf(item, 'a product')
    const id = nameAt(product, 'product_id', 'product_id of a product')
    if (this.#products.has(id)) throw new RefusedDocument(`product_tree has the product ${id} twice`)
    const fullName = nameAt(product, 'name', 'name of a product')
    const helper = membersOf(product['product_identification_helper'] ?? {}, 'product_identification_helper')
    const purl = optionalNameAt(helper, 'purl', 'product_identification_helper.purl')
    // Ids of products have a meaning in one document only: the full name identifies a product without a package URL.
    this.#products.set(id, purl === '' ? { ...facts, identifier: fullName, name: facts.name || fullName, type: '' } : productOf(purl, 'purl of a product'))
  }

  #relate(relationship: Members): void {
    const where = 'product_tree.relationships'
    const product = membersOf(relationship['full_product_name'], `${where}.full_product_name`)
    const id = nameAt(product, 'product_id', `${where}.full_product_name.product_id`)
    if (this.#products.has(id) || this.#relationships.has(id)) throw new RefusedDocument(`product_tree has the product ${id} twice`)
    this.#relationships.set(id, {
      part: nameAt(relationship, 'product_reference', `${where}.product_reference`),
      whole: nameAt(relationship, 'relates_to_product_reference', `${where}.relates_to_product_reference`),
    })
  }
}

function productsIn(members: Members, key: string): readonly unknown[] {
  return listAt(members, key, { where: `product_tree.${key}`, max: maxStatements })
}
