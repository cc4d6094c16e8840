"""Facts in twelve languages, each with a question in other forms of its words.

Owns: the sentences, written for this project. Must never know: how they are searched.

Each fact is a sentence, a question, and the word that answers it. The question has the subject in another
case, number or tense where the language has such, and never the answer. The talk has no fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["LANGUAGES", "Language", "Told"]


class Told(NamedTuple):
    """What was said once, what is asked later, and a word that only the answer has."""

    said: str
    asked: str
    value: str


class Language(NamedTuple):
    """The facts of a language, and sentences without one."""

    facts: tuple[Told, ...]
    talk: tuple[str, ...]


LANGUAGES: Final[Mapping[str, Language]] = {
    "English": Language(
        (
            Told(
                "My neighbour keeps seven hedgehogs in the shed.",
                "What did my neighbours keep in sheds?",
                "hedgehogs",
            ),
            Told("The invoice of the plumber was 312 euros.", "How much did the plumbers invoice?", "312"),
            Told(
                "Our choir rehearses in the old brewery.", "Where do the choirs have rehearsals?", "brewery"
            ),
            Told(
                "Grandmother hid the recipe behind the mirror.",
                "Where was grandmother hiding her recipes?",
                "mirror",
            ),
            Told("The violin was built in 1764.", "When were the violins built?", "1764"),
            Told("I am allergic to celery.", "Which allergies do I have?", "celery"),
        ),
        (
            "The bus was late again today.",
            "I slept badly and drank too much coffee.",
            "Tell me something cheerful.",
            "Nothing much happened this week.",
            "The garden needs some rain.",
            "I will think about it tomorrow.",
        ),
    ),
    "German": Language(
        (
            Told(
                "Mein Nachbar hält sieben Igel im Schuppen.",
                "Was halten die Nachbarn in den Schuppen?",
                "Igel",
            ),
            Told(
                "Die Rechnung des Klempners betrug 312 Euro.",
                "Wie hoch waren die Rechnungen vom Klempner?",
                "312",
            ),
            Told("Unser Chor probt in der alten Brauerei.", "Wo sind die Proben unseres Chores?", "Brauerei"),
            Told(
                "Großmutter versteckte das Rezept hinter dem Spiegel.",
                "Wo waren Großmutters Rezepte versteckt?",
                "Spiegel",
            ),
            Told("Die Geige wurde 1764 gebaut.", "Von wann sind die Geigen?", "1764"),
            Told("Ich vertrage keinen Sellerie.", "Was habe ich nicht vertragen?", "Sellerie"),
        ),
        (
            "Der Bus kam heute wieder zu spät.",
            "Ich habe schlecht geschlafen.",
            "Erzähl mir etwas Heiteres.",
            "Diese Woche ist nicht viel passiert.",
            "Der Garten braucht Regen.",
            "Das überlege ich mir morgen.",
        ),
    ),
    "French": Language(
        (
            Told(
                "Mon voisin élève sept hérissons dans la remise.",
                "Qu'élèvent mes voisins dans les remises ?",
                "hérissons",
            ),
            Told(
                "La facture du plombier était de 312 euros.",
                "À combien s'élevaient les factures des plombiers ?",
                "312",
            ),
            Told(
                "Notre chorale répète dans l'ancienne brasserie.",
                "Où ont lieu les répétitions de la chorale ?",
                "brasserie",
            ),
            Told(
                "Grand-mère a caché la recette derrière le miroir.",
                "Où les recettes étaient-elles cachées ?",
                "miroir",
            ),
            Told("Le violon fut construit en 1764.", "Quand a-t-on construit les violons ?", "1764"),
            Told("Je suis allergique au céleri.", "Quelles allergies ai-je ?", "céleri"),
        ),
        (
            "Le bus était encore en retard.",
            "J'ai mal dormi cette nuit.",
            "Raconte-moi quelque chose de gai.",
            "Il ne s'est rien passé cette semaine.",
            "Le jardin a besoin de pluie.",
            "J'y penserai demain.",
        ),
    ),
    "Spanish": Language(
        (
            Told(
                "Mi vecino cría siete erizos en el cobertizo.",
                "¿Qué crían los vecinos en los cobertizos?",
                "erizos",
            ),
            Told(
                "La factura del fontanero fue de 312 euros.",
                "¿De cuánto eran las facturas de los fontaneros?",
                "312",
            ),
            Told(
                "Nuestro coro ensaya en la antigua cervecería.",
                "¿Dónde son los ensayos de los coros?",
                "cervecería",
            ),
            Told(
                "La abuela escondió la receta detrás del espejo.",
                "¿Dónde estaban escondidas las recetas?",
                "espejo",
            ),
            Told("El violín fue construido en 1764.", "¿Cuándo se construyeron los violines?", "1764"),
            Told("Soy alérgico al apio.", "¿Qué alergias tengo?", "apio"),
        ),
        (
            "El autobús llegó tarde otra vez.",
            "He dormido muy mal.",
            "Cuéntame algo alegre.",
            "Esta semana no pasó nada.",
            "El jardín necesita lluvia.",
            "Mañana lo pensaré.",
        ),
    ),
    "Russian": Language(
        (
            Told("Мой сосед держит семь ежей в сарае.", "Кого держат соседи в сараях?", "ежей"),
            Told("Счёт сантехника составил 312 рублей.", "Сколько взяли сантехники?", "312"),
            Told("Наш хор репетирует в старой пивоварне.", "Где проходят репетиции хора?", "пивоварне"),
            Told("Бабушка спрятала рецепт за зеркалом.", "Где спрятаны бабушкины рецепты?", "зеркалом"),
            Told("Скрипка сделана в 1764 году.", "Когда сделали скрипки?", "1764"),
            Told("У меня аллергия на сельдерей.", "Какие у меня аллергии?", "сельдерей"),
        ),
        (
            "Автобус сегодня опять опоздал.",
            "Я плохо спал ночью.",
            "Расскажи что-нибудь весёлое.",
            "На этой неделе ничего не было.",
            "Саду нужен дождь.",
            "Подумаю об этом завтра.",
        ),
    ),
    "Polish": Language(
        (
            Told("Mój sąsiad trzyma siedem jeży w szopie.", "Co trzymają sąsiedzi w swoich szopach?", "jeży"),
            Told("Rachunek hydraulika wyniósł 312 złotych.", "Ile wynosiły rachunki hydraulików?", "312"),
            Told("Nasz chór ćwiczy w starym browarze.", "Gdzie nasze chóry mają ćwiczenia?", "browarze"),
            Told("Babcia schowała przepis za lustrem.", "Gdzie były schowane przepisy?", "lustrem"),
            Told("Skrzypce zbudowano w 1764 roku.", "Kiedy zbudowane były te skrzypce?", "1764"),
            Told("Mam uczulenie na seler.", "Jakie mam uczulenia?", "seler"),
        ),
        (
            "Autobus znowu się spóźnił.",
            "Źle dziś spałem.",
            "Opowiedz mi coś wesołego.",
            "W tym tygodniu nic się nie działo.",
            "Ogród potrzebuje deszczu.",
            "Pomyślę o tym jutro.",
        ),
    ),
    "Turkish": Language(
        (
            Told(
                "Komşum kulübede yedi kirpi besliyor.", "Komşularımız kulübelerinde ne besliyorlar?", "kirpi"
            ),
            Told("Tesisatçının faturası 312 liraydı.", "Tesisatçılar ne kadar fatura kesti?", "312"),
            Told("Koromuz eski bira fabrikasında çalışıyor.", "Korolar nerede prova için çalışır?", "bira"),
            Told(
                "Büyükannem tarifi aynanın arkasına sakladı.",
                "Büyükannemin tarifleri nerede saklanmıştı?",
                "aynanın",
            ),
            Told("Keman 1764 yılında yapıldı.", "Kemanlar ne zaman yapılmış?", "1764"),
            Told("Kerevize alerjim var.", "Hangi alerjilerim var?", "Kerevize"),
        ),
        (
            "Otobüs bugün yine geç geldi.",
            "Dün gece kötü uyudum.",
            "Bana neşeli bir şey anlat.",
            "Bu hafta pek bir şey olmadı.",
            "Bahçeye yağmur lazım.",
            "Yarın düşünürüm.",
        ),
    ),
    "Finnish": Language(
        (
            Told("Naapurini pitää vajassa seitsemää siiliä.", "Mitä naapurit pitävät?", "siiliä"),
            Told("Putkimiehen lasku oli 312 euroa.", "Paljonko putkimiehille maksettiin?", "312"),
            Told("Kuoromme harjoittelee vanhassa panimossa.", "Missä kuoron harjoitukset ovat?", "panimossa"),
            Told("Isoäiti kätki reseptin peilin taakse.", "Missä isoäidin reseptit ovat?", "peilin"),
            Told("Viulu rakennettiin vuonna 1764.", "Milloin viulut on rakennettu?", "1764"),
            Told("Olen allerginen sellerille.", "Mitä allergioita minulla on?", "sellerille"),
        ),
        (
            "Bussi oli taas myöhässä.",
            "Nukuin huonosti viime yönä.",
            "Kerro jotain hauskaa.",
            "Tällä viikolla ei tapahtunut paljon.",
            "Puutarha tarvitsee sadetta.",
            "Mietin sitä huomenna.",
        ),
    ),
    "Chinese": Language(
        (
            Told("我的邻居在棚子里养了七只刺猬。", "邻居家的棚子里养着什么动物?", "刺猬"),
            Told("水管工的账单是三百一十二元。", "水管工收了多少钱?", "三百一十二"),
            Told("我们的合唱团在旧啤酒厂排练。", "合唱团在哪里练习?", "啤酒厂"),
            Told("奶奶把食谱藏在镜子后面。", "奶奶的食谱在什么地方?", "镜子"),
            Told("这把小提琴是1764年制造的。", "小提琴是哪一年做的?", "1764"),
            Told("我对芹菜过敏。", "我有什么过敏的东西?", "芹菜"),
        ),
        (
            "今天公交车又晚点了。",
            "昨晚我睡得不好。",
            "给我讲点开心的事。",
            "这个星期没发生什么。",
            "花园需要下雨。",
            "明天再想吧。",
        ),
    ),
    "Japanese": Language(
        (
            Told(
                "隣の人は小屋でハリネズミを七匹飼っています。",
                "小屋で飼われている動物は何ですか。",
                "ハリネズミ",
            ),
            Told("配管工の請求書は312円でした。", "配管工にいくら払いましたか。", "312"),
            Told("私たちの合唱団は古い醸造所で練習します。", "合唱団の練習場所はどこですか。", "醸造所"),
            Told("祖母は鏡の後ろにレシピを隠しました。", "祖母のレシピはどこですか。", "鏡"),
            Told("このバイオリンは1764年に作られました。", "バイオリンはいつ製作されましたか。", "1764"),
            Told("私はセロリにアレルギーがあります。", "私のアレルギーは何ですか。", "セロリ"),
        ),
        (
            "今日もバスが遅れました。",
            "昨夜はよく眠れませんでした。",
            "何か楽しい話をしてください。",
            "今週は何もありませんでした。",
            "庭に雨が必要です。",
            "明日考えます。",
        ),
    ),
    "Korean": Language(
        (
            Told(
                "이웃은 헛간에서 고슴도치 일곱 마리를 키운다.",
                "이웃이 헛간에 키우는 동물은 무엇인가?",
                "고슴도치",
            ),
            Told("배관공의 청구서는 312원이었다.", "배관공에게 얼마를 냈지?", "312"),
            Told("우리 합창단은 옛 양조장에서 연습한다.", "합창단이 연습하는 곳은 어디지?", "양조장"),
            Told("할머니는 조리법을 거울 뒤에 숨겼다.", "할머니가 숨긴 조리법은 어디에 있지?", "거울"),
            Told("바이올린은 1764년에 만들어졌다.", "바이올린을 언제 만들었지?", "1764"),
            Told("나는 셀러리 알레르기가 있다.", "내가 가진 알레르기는 뭐지?", "셀러리"),
        ),
        (
            "오늘도 버스가 늦었다.",
            "어젯밤에 잠을 못 잤다.",
            "재미있는 이야기를 해 줘.",
            "이번 주에는 별일이 없었다.",
            "정원에 비가 필요하다.",
            "내일 생각해 볼게.",
        ),
    ),
    "Thai": Language(
        (
            Told("เพื่อนบ้านของฉันเลี้ยงเม่นเจ็ดตัวในโรงเก็บของ", "ในโรงเก็บของเพื่อนบ้านเลี้ยงสัตว์อะไร", "เม่น"),
            Told("ใบแจ้งหนี้ของช่างประปาคือ 312 บาท", "ช่างประปาเก็บเงินเท่าไร", "312"),
            Told("คณะประสานเสียงของเราซ้อมที่โรงเบียร์เก่า", "คณะประสานเสียงซ้อมที่ไหน", "โรงเบียร์"),
            Told("คุณยายซ่อนสูตรอาหารไว้หลังกระจก", "สูตรอาหารของคุณยายอยู่ที่ไหน", "กระจก"),
            Told("ไวโอลินสร้างขึ้นในปี 1764", "ไวโอลินถูกสร้างเมื่อไร", "1764"),
            Told("ฉันแพ้ขึ้นฉ่าย", "ฉันแพ้อะไรบ้าง", "ขึ้นฉ่าย"),
        ),
        (
            "วันนี้รถเมล์มาสายอีกแล้ว",
            "เมื่อคืนนอนไม่ค่อยหลับ",
            "เล่าเรื่องสนุกให้ฟังหน่อย",
            "สัปดาห์นี้ไม่มีอะไรเกิดขึ้น",
            "สวนต้องการฝน",
            "พรุ่งนี้ค่อยคิด",
        ),
    ),
}
