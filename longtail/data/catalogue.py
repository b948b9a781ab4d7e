"""The words of a made-up shop: departments with their products, what the products are for, brands, colours, sizes.

Products stand in pairs that are bought together (kettle and teapot), so that a generated catalogue relates products
the way customers do. No product stands twice, so that a title says which one it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.core.values import Bytes, Offsets, Texts

# department: products, in pairs bought together; and what such products are made of or look like
DEPARTMENTS: dict[str, tuple[str, str]] = {
    "kitchen": (
        "kettle, teapot, frying pan, spatula, stock pot, ladle, chef knife, cutting board, mixing bowl, whisk, coffee grinder, "
        "espresso cup",
        "stainless steel, enamel, copper, cast iron, ceramic, non-stick, hammered, borosilicate, induction, double-walled",
    ),
    "garden": (
        "lawn mower, grass trimmer, watering can, plant pot, pruning shears, garden glove, wheelbarrow, compost bin, hose reel, "
        "sprinkler, "
        "bird feeder, nesting box",
        "galvanised, terracotta, cordless, weatherproof, telescopic, cedar, solar, rust-free, self-watering, frost-proof",
    ),
    "tools": (
        "drill, drill bit set, claw hammer, nail assortment, socket wrench, torque adapter, hand saw, mitre box, tape measure, "
        "spirit level, "
        "sander, sanding disc",
        "brushless, carbide, heavy-duty, insulated, magnetic, chrome vanadium, impact-rated, folding, pneumatic, titanium",
    ),
    "office": (
        "fountain pen, ink cartridge, notebook, pencil case, stapler, staples box, desk organiser, letter tray, laser printer, toner, "
        "whiteboard, marker set",
        "recycled, leather-bound, refillable, dotted, archival, ergonomic, anodised, quick-dry, spiral, acid-free",
    ),
    "audio": (
        "headphones, headphone stand, turntable, stylus, bookshelf speaker, speaker cable, microphone, pop filter, amplifier, equaliser, "
        "radio, antenna",
        "wireless, noise-cancelling, studio, valve, open-back, bluetooth, walnut, shielded, active, vintage-look",
    ),
    "camera": (
        "tripod, ball head, camera strap, lens cap, memory card, card reader, camera bag, rain cover, flash, diffuser, zoom lens, "
        "polarising ring",
        "carbon fibre, quick-release, multi-coated, full-frame, mirrorless, padded, macro, wide-angle, telephoto, anti-shake",
    ),
    "pets": (
        "dog collar, dog leash, cat tree, scratching post, aquarium, fish net, hamster wheel, rodent bedding, pet bowl, kibble scoop, "
        "dog crate, crate mat",
        "reflective, sisal, chew-proof, washable, orthopaedic, hemp, no-pull, tempered, hypoallergenic, slow-feed",
    ),
    "nursery": (
        "stroller, stroller hook, baby bottle, bottle brush, crib, crib sheet, pacifier, teether, diaper bag, changing pad, "
        "high chair, bib",
        "bamboo, organic, anti-colic, convertible, silicone, breathable, foldable, muslin, leakproof, rattle-free",
    ),
    "outdoors": (
        "tent, sleeping bag, hiking boot, gaiter, backpack, hydration bladder, camp stove, gas canister, headlamp, lantern, "
        "trekking pole, compass",
        "ultralight, waterproof, four-season, down-filled, ripstop, merino, insulating, rechargeable, aluminium, shockproof",
    ),
    "fitness": (
        "dumbbell, weight rack, yoga mat, yoga block, resistance band, door anchor, jump rope, sweat towel, kettlebell, lifting chalk, "
        "exercise bike, saddle cover",
        "rubber-coated, cork, latex-free, adjustable, neoprene, anti-slip, weighted, foam, hexagonal, magnetic-drive",
    ),
    "automotive": (
        "car charger, phone mount, floor mat, trunk liner, wiper blade, washer fluid, brake pad, brake rotor, oil filter, engine oil, "
        "jump starter, battery terminal",
        "all-weather, synthetic, slotted, heated, carbon, beam, semi-metallic, universal-fit, low-dust, high-mileage",
    ),
    "lighting": (
        "desk lamp, light bulb, ceiling fan, fan remote, string lights, extension cord, night light, motion sensor, chandelier, "
        "candle sleeve, "
        "lampshade, lamp base",
        "dimmable, smart, warm-white, linen, brass, crystal, clip-on, rattan, energy-saving, opal",
    ),
    "bedding": (
        "duvet, duvet cover, pillow, pillowcase, mattress, mattress topper, blanket, throw, bed frame, bed skirt, quilt, quilt rack",
        "cotton, satin, memory-foam, flannel, percale, goose-down, cooling, quilted, microfibre, jacquard",
    ),
    "bath": (
        "shower head, shower hose, bath towel, towel rail, soap dispenser, soap refill, bath mat, toilet brush, shower curtain, "
        "curtain ring, "
        "vanity mirror, toothbrush holder",
        "rainfall, terry, wall-mounted, quick-drying, foaming, chenille, mildew-resistant, matte, backlit, suction",
    ),
    "crafts": (
        "knitting needle, yarn, sewing machine, bobbin, embroidery hoop, embroidery floss, paint brush, canvas, glue gun, glue stick, "
        "paper cutter, cardstock",
        "circular, hand-dyed, mercerised, watercolour, acrylic, hot-melt, computerised, beechwood, gallery-wrapped, textured",
    ),
    "music": (
        "guitar, guitar string set, violin, rosin, drum stick, practice pad, keyboard, keyboard stand, trumpet, mouthpiece, "
        "music stand, metronome",
        "acoustic, electric, spruce, rosewood, hickory, nickel-wound, semi-hollow, silver-plated, touch-sensitive, student",
    ),
    "toys": (
        "building bricks, baseplate, doll, doll house, toy train, train track, puzzle, puzzle roll, race car, race track, plush bear, "
        "bear outfit",
        "wooden, glow-in-the-dark, remote-controlled, educational, magnetic-tile, hand-painted, interlocking, talking, miniature, jumbo",
    ),
    "games": (
        "board game, card sleeve, game controller, charging dock, chess set, chess clock, dice, dice tray, dart board, dart flight, "
        "poker chips, "
        "playing cards",
        "cooperative, tournament, weighted-base, limited, handcrafted, family, strategy, clay, bristle, programmable",
    ),
    "beauty": (
        "hair dryer, round brush, lipstick, lip liner, nail polish, polish remover, face cream, face serum, shampoo, conditioner, "
        "perfume, atomiser",
        "ionic, vegan, long-lasting, fragrance-free, hydrating, sulphate-free, retinol, tinted, mineral, argan",
    ),
    "health": (
        "thermometer, probe cover, blood pressure monitor, monitor cuff, heating pad, massage oil, vitamin tablets, pill box, knee brace, "
        "ice pack, bandage, antiseptic spray",
        "digital, infrared, clinical, sugar-free, elastic, reusable, sterile, chewable, far-infrared, compression",
    ),
    "clothing": (
        "rain jacket, rain trousers, dress shirt, necktie, wool sweater, scarf, jeans, belt, winter coat, mitten, pyjamas, robe",
        "slim-fit, fleece-lined, wrinkle-free, oversized, hooded, stretch, selvedge, cashmere, knitted, water-repellent",
    ),
    "shoes": (
        "running shoe, running sock, leather boot, shoe polish, sandal, foot cream, slipper, shoe tree, sneaker, shoelace, "
        "football cleat, shin guard",
        "cushioned, suede, vegan-leather, orthotic, mesh, wide-fit, trail, laceless, gum-sole, grip-sole",
    ),
    "luggage": (
        "suitcase, luggage tag, duffel bag, packing cube, passport cover, travel adapter, garment bag, suit hanger, laptop sleeve, "
        "mouse pouch, "
        "wallet, coin purse",
        "hard-shell, expandable, full-grain, anti-theft, cabin-size, rolling, compressible, water-resistant, personalised, featherweight",
    ),
    "jewellery": (
        "necklace, pendant, ring, ring box, bracelet, charm, wristwatch, watch strap, earrings, earring backs, brooch, pin clasp",
        "sterling silver, gold-plated, rose-gold, pearl, moonstone, engraved, stackable, sapphire, art-deco, tarnish-free",
    ),
}

USES = (
    "travel, beginner, apartment, family, workshop, weekend, everyday, gift, student, senior, left-hand, summer, winter, party, "
    "commuter, school, guest, collector, night, seaside, city, mountain, camping, caravan, boat, hotel, cafe, barn, cellar, attic, "
    "balcony, patio, loft, dorm, holiday, wedding, birthday, contest, rehearsal, festival, market, rental, desert, jungle, arctic, "
    "island, village, airport"
)

SERIES = (
    "Aurora, Summit, Harbor, Meadow, Falcon, Willow, Ember, Cascade, Juniper, Orbit, Voyager, Lumen, Tundra, Saffron, Cobalt, "
    "Marble, Breeze, "
    "Canyon, Delta, Echo, Fable, Glacier, Horizon, Indigo, Jasper, Kestrel, Lagoon, Mosaic, Nimbus, Oasis, Pioneer, Quartz, "
    "Ridge, Sierra, "
    "Thistle, Umbra, Velvet, Wander, Xenon, Yonder, Zephyr, Acorn, Bramble, Cinder, Drift, Élan, Fjord, Grove, Hazel, Iris, "
    "Jubilee, Karma, "
    "Laurel, Maple, Nectar, Onyx, Prairie, Quill, Raven, Solstice, Tempo, Unity, Vista, Wren, Yarrow, Zenith, Alpine, Beacon, "
    "Clover, Dune, "
    "Equinox, Fern, Garnet, Heron, Ivory, Jade, Keystone, Lark, Mirage, Nova, Opal, Pebble, Quest, River, Sable, Topaz, Utopia, Vertex, "
    "Whisper, Amber, Birch, Comet, Dahlia, Everest, Flint, Gale, Halo, Island, Journey, Kite, Lotus, Meteor, North, Olive, "
    "Phoenix, Rhythm, "
    "Spruce, Tide, Urban, Valley, Wave, Aspen, Blaze, Coral, Dawn, Eclipse, Frontier, Ginkgo, Haven, Icon, Jewel, Kinetic, "
    "Legacy, Magnet, "
    "Neo, Origin, Pulse, Quantum"
)

SERIES_ENDINGS = (
    "line craft ware works flex core max pro tech form mark ridge stone wood field gate point way land light star wing song storm "
    "crest brook dale ford haven mere shore side ton view well worth yard smith path forge"
)

COLOURS = (
    "red, blue, green, black, white, grey, yellow, orange, purple, pink, brown, beige, turquoise, navy, silver, gold, maroon, crimson, "
    "scarlet, rust, peach, apricot, mustard, khaki, lime, mint, sage, emerald, teal, cyan, azure, denim, lavender, lilac, mauve, plum, "
    "magenta, fuchsia, rose, blush, tan, taupe, chestnut, mocha, charcoal, slate, pewter, cream"
)
SIZES = (
    "mini, small, medium, large, xl, xxl, compact, tall, slim, wide, 2pk, 3pk, 6pk, 10pk, 24pk, 20cm, 30cm, 45cm, 60cm, 90cm, 8in, 12in, "
    "18in, 250ml, 500ml, 750ml, 2l, 250g, 500g, 1kg"
)
EXTRAS = (
    "new, refurbished, imported, bestseller, discontinued, gift-wrapped, with manual, with carrying case, second edition, bulk, "
    "trial, premium, "
    "classic, 2-year warranty, improved, replacement"
)

FIRST_SYLLABLES = (
    "Bar Bel Bri Cal Cor Dal Del Dor Fen Fir Gar Gel Hal Hav Jor Kal Kel Lan Lor Mal Mar Nor Or Pal Pel Quin Ral Ros Sal Sel Tal Tor Val"
)
MIDDLE_SYLLABLES = "a an ar e el en er i il in o ol on or u ul um va vi ro"
LAST_SYLLABLES = "co da dex lia lux mo na nix ra ria ta tek tis ton va vex vo wick za zen"

N_DEPARTMENTS = len(DEPARTMENTS)
PRODUCTS_EACH, LOOKS_EACH = 12, 10  # of a department
N_SERIES = 128  # that are plain words
MAX_SERIES = N_SERIES * (1 + len(SERIES_ENDINGS.split()))


class Words(NamedTuple):
    """Every word in one buffer; each field below it is the place of the first word of its kind."""

    buffer: Bytes
    offsets: Offsets  # (n_words + 1,)
    product: int  # of department d: product + d * PRODUCTS_EACH onwards
    look: int  # of department d: look + d * LOOKS_EACH onwards
    use: int
    series: int
    colour: int
    size: int
    extra: int
    brand: int  # of department d: brand + d * brands_each onwards
    n_uses: int
    n_series: int
    n_colours: int
    n_sizes: int
    n_extras: int
    brands_each: int


def shop_words(brands_each: int, n_series: int) -> Words:
    """The shop's words with this many brands in each department and this many names of series."""
    products = [word for products, _ in DEPARTMENTS.values() for word in products.split(", ")]
    looks = [word for _, looks in DEPARTMENTS.values() for word in looks.split(", ")]
    uses, colours, sizes, extras = (kind.split(", ") for kind in (USES, COLOURS, SIZES, EXTRAS))
    kinds = [products, looks, uses, series_names(n_series), colours, sizes, extras, brand_names(brands_each * N_DEPARTMENTS)]
    product, look, use, first_series, colour, size, extra, brand = np.cumsum([0, *map(len, kinds[:-1])]).tolist()
    texts = Texts.of(word for kind in kinds for word in kind)
    return Words(
        buffer=texts.buffer,
        offsets=texts.offsets,
        product=product,
        look=look,
        use=use,
        series=first_series,
        colour=colour,
        size=size,
        extra=extra,
        brand=brand,
        n_uses=len(uses),
        n_series=n_series,
        n_colours=len(colours),
        n_sizes=len(sizes),
        n_extras=len(extras),
        brands_each=brands_each,
    )


def series_names(n: int) -> list[str]:
    """Names of one word, none twice: plain words first, then with one ending after the other.

    >>> series_names(129)[-2:]
    ['Quantum', 'Auroraline']
    """
    plain = SERIES.split(", ")
    names = plain + [word + ending for ending in SERIES_ENDINGS.split() for word in plain]
    if n > len(names):
        raise ValueError(f"{n} names of series; there are {len(names)}.")
    return names[:n]


def brand_names(n: int) -> list[str]:
    """Names that can be spoken, none twice; a number is added once all syllables are used up.

    >>> brand_names(4)
    ['Baraco', 'Gelonria', 'Palelza', 'Belvanix']
    """
    first, middle, last = (kind.split() for kind in (FIRST_SYLLABLES, MIDDLE_SYLLABLES, LAST_SYLLABLES))
    n_names = len(first) * len(middle) * len(last)
    names: dict[str, None] = {}
    count = 0
    while len(names) < n:
        place = count % n_names * 4649 % n_names  # a prime step, so that neighbours sound different
        rest, end = divmod(place, len(last))
        start, between = divmod(rest, len(middle))
        again = f" {count // n_names + 1}" if count >= n_names else ""
        names[first[start] + middle[between] + last[end] + again] = None
        count += 1
    return list(names)
